"""`search`: ripgrep in the box, with bounded lines and results."""

from __future__ import annotations

import base64

from corral.errors import ToolError
from corral.schema.tools import ArgumentRole, SideEffect, ToolKind, ToolResult, ToolSpec, ToolStatus
from corral.schema.visible import visible
from corral.tools.base import Arguments, Tool, ToolContext, ToolTimeouts
from corral.tools.bounds import clean
from corral.tools.builtin.schema import PATH_NOTE, describe, flag, number, parameters, path, text
from corral_protocol.error import ErrorCode
from corral_protocol.message import ExecResult, ExecStatus
from corral_protocol.name import decode_name

_MAX_COLUMNS = 400
_READ_BYTES = 256 << 10
_RESULTS = 100

_DESCRIPTION = describe(
    "Searches the text of files with ripgrep, sorted by path.",
    "to find where something is defined, used or mentioned.",
    "to read a file you already know (read_file), or kept outputs (read_file of /outputs/<call>).",
    "file, line number and line of each match, long lines cut with a mark. Files that .gitignore names, binary files "
    "and .git are left out; include_ignored brings back the first.",
)


def build_search(timeouts: ToolTimeouts) -> Tool:
    schema = parameters(
        ["pattern"],
        pattern=text("A regular expression in Rust's syntax, or plain text with literal.", minimum=1, maximum=10_000),
        path=path(f"File or directory to search; the workspace if not given. {PATH_NOTE}", empty=True),
        glob=text("Only files that match, such as *.py; with a leading ! only others.", maximum=1000),
        literal=flag("Take the pattern as plain text."),
        ignore_case=flag("Ignore upper and lower case."),
        include_ignored=flag("Search files that .gitignore names, too."),
        files_only=flag("Only the names of files with a match."),
        context=number("Lines to show around each match, 0 if not given.", minimum=0, maximum=20),
        limit=number(f"At most so many lines, {_RESULTS} if not given.", minimum=1, maximum=1000),
    )
    spec = ToolSpec(
        name="search",
        description=_DESCRIPTION,
        parameters=schema,
        scope="workspace",
        side_effect=SideEffect.READ_ONLY,
        idempotent=True,
        timeout_s=timeouts.other_s,
        kind=ToolKind.READ,
        roles={"path": ArgumentRole.PATH},
    )

    async def run(arguments: Arguments, context: ToolContext) -> ToolResult:
        return await _search(arguments, context, timeouts.other_s)

    return Tool(spec, run, limit_s=lambda _: timeouts.other_s + 5.0)


async def _search(arguments: Arguments, context: ToolContext, timeout_s: float) -> ToolResult:
    found = bytearray()
    result = await context.sandbox.exec(
        _build_argv(arguments),
        timeout_s=timeout_s,
        stdout=lambda data: found.extend(data),
        stream_limit=_READ_BYTES,
        kill_background=True,
    )
    _check(result, bool(found))
    lines = clean(bytes(found).decode("utf-8", "replace")).split("\n")
    # The last piece is empty, or a line cut off by the limit of what is read.
    lines = [line.removeprefix("./") for line in lines[:-1]]
    limit = arguments.get("limit", _RESULTS)
    more = len(lines) > limit or result.stdout.total_bytes > len(found)
    shown = lines[:limit]
    late = result.status is ExecStatus.TIMEOUT
    return ToolResult(
        success=True,
        status=ToolStatus.TIMEOUT if late else ToolStatus.TRUNCATED if more else ToolStatus.OK,
        output="\n".join(shown),
        summary=_summarise(shown, more, late, timeout_s),
        next_actions=("narrow the pattern, the path or the glob",) if more or late else (),
        data={"lines": len(shown), "more": more},
    )


def _summarise(shown: list[str], more: bool, late: bool, timeout_s: float) -> str:
    if late:
        return f"{len(shown)} lines found before the time of {timeout_s:g} s was up"
    if not shown:
        return "no match"
    return f"the first {len(shown)} lines; there are more" if more else f"{len(shown)} lines"


def _build_argv(arguments: Arguments) -> list[bytes | str]:
    try:
        place = decode_name(arguments.get("path") or ".")
    except ValueError as error:
        raise ToolError(f"path: {error}", code=ErrorCode.INVALID_ARGUMENT) from error
    # SECURITY: --no-config, or a file of the box could add --pre and run programs; every value is bound to its option
    # and the path stands behind `--`; test_search_passes_nothing_as_an_option
    argv: list[bytes | str] = ["rg", "--no-config", "--color=never", "--no-heading", "--sort=path", "--hidden"]
    argv += ["--glob=!.git", f"--max-columns={_MAX_COLUMNS}", "--max-columns-preview"]
    argv += ["--files-with-matches"] if arguments.get("files_only") else ["--line-number", "--with-filename"]
    options = {"literal": "--fixed-strings", "ignore_case": "--ignore-case", "include_ignored": "--no-ignore"}
    argv += [option for name, option in options.items() if arguments.get(name)]
    if arguments.get("context"):
        argv.append(f"--context={arguments['context']}")
    if arguments.get("glob"):
        argv.append(f"--glob={arguments['glob']}")
    return [*argv, f"--regexp={arguments['pattern']}", "--", place]


def _check(result: ExecResult, found: bool) -> None:
    """Raise ToolError where ripgrep did not search."""
    if result.status is ExecStatus.NOT_STARTED or (result.status is ExecStatus.EXITED and result.exit_code == 127):
        raise ToolError(
            "ripgrep (rg) is not installed in this box",
            code=ErrorCode.UNSUPPORTED,
            hint="use shell with grep -rn instead",
        )
    if result.status is ExecStatus.TIMEOUT:
        return
    if result.status is not ExecStatus.EXITED:
        raise ToolError(f"the search was ended ({result.status.value})", code=ErrorCode.CANCELLED)
    if result.exit_code > 1 and not found:
        problem = base64.b64decode(result.stderr.head_b64).decode("utf-8", "replace").strip()
        raise ToolError(
            visible(problem, limit=500),
            code=ErrorCode.INVALID_ARGUMENT,
            hint="correct pattern, glob or path; literal takes the pattern as plain text",
        )
