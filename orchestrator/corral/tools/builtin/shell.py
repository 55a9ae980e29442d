"""`shell`: a command line in the box, answered with its exact end."""

from __future__ import annotations

import base64
import re
import signal
from dataclasses import dataclass

from corral.errors import ToolError
from corral.sandbox.cause import find_cause
from corral.sandbox.used import build_call_resources
from corral.schema.tools import ArgumentRole, SideEffect, ToolKind, ToolResult, ToolSpec, ToolStatus, Truncation
from corral.schema.visible import visible
from corral.tools.base import Arguments, Tool, ToolContext, ToolTimeouts
from corral.tools.bounds import SHOWN_BYTES, bound, clean, describe_cut
from corral.tools.builtin.schema import describe, parameters, show_name, text
from corral.tools.outputs import CallOutput
from corral.tools.result import failed
from corral_protocol.error import ErrorCode
from corral_protocol.message import Capture, ExecResult, ExecStatus
from corral_protocol.name import decode_name

_GRACE_S = 15.0  # for the box to end the command's whole tree and answer
_CLEANED_BYTES = 1 << 20  # up to here the whole output is cleaned, so that a long progress bar folds to one line
_HINTED_BYTES = 4096

_DESCRIPTION = describe(
    "Runs a command line with bash in the sandbox, in a fresh non-interactive shell.",
    "to run tests, builds and programs, for git, and for anything no other tool does.",
    "to read, edit, search or list files: read_file, edit_file, search and list_files are exact and cheaper. Not for "
    "programs that wait for a keyboard: standard input is at its end. There is no network and no sudo.",
    "standard output, then standard error, the exit code and the working directory. The working directory is kept for "
    "the next call, variables and functions are not. Long output is cut in the middle; the whole is at "
    "/outputs/<call>. When the time is up, the command and its children are ended and the output so far comes back.",
)

# What programs print when the sandbox stops them, and what a model should know then. Only ever advice.
_HINTS = (
    (
        r"(?i)could not resolve|name or service not known|temporary failure in name resolution|network is unreachable"
        r"|no route to host|failed to establish a new connection|could not find a version that satisfies",
        "the sandbox has no network: work with what is installed or lies in the workspace",
    ),
    (
        r"(?i)operation not permitted|must be superuser|must be root|are you root\?|sudo: |a password is required",
        "blocked by the sandbox's policy, not a permission you can fix with sudo: take another way",
    ),
    (r"(?i)read-only file system", "only the workspace, /tmp and the home directory can be written"),
    (r"(?i)no space left on device|disk quota exceeded", "the box's disk is full: delete what is not needed"),
    (r"(?i)fork: (?:retry: )?resource temporarily unavailable", "too many processes: end some, or start fewer at once"),
    (r"(?i)EOFError: EOF when reading a line|stdin is not a terminal|not a tty", "the shell is non-interactive: give "
     "the input with a pipe, a file or an option"),
)  # fmt: skip

_PLACES = {"workspace": "the workspace", "tmp": "/tmp", "home": "the home directory", "shm": "/dev/shm"}


@dataclass(frozen=True)
class _Stream:
    """One output stream as it will be shown."""

    text: str
    total_bytes: int
    missing: bool  # text has a gap


def build_shell(timeouts: ToolTimeouts) -> Tool:
    schema = parameters(
        ["command"],
        command=text("The command line, as you would type it.", minimum=1, maximum=200_000),
        timeout_s={
            "type": "number",
            "minimum": 1,
            "maximum": timeouts.shell_max_s,
            "default": timeouts.shell_s,
            "description": f"Seconds it may take, {timeouts.shell_s:g} if not given.",
        },
    )
    spec = ToolSpec(
        name="shell",
        description=_DESCRIPTION,
        parameters=schema,
        scope="box",
        side_effect=SideEffect.WORKSPACE_WRITE,
        idempotent=False,
        timeout_s=timeouts.shell_s,
        kind=ToolKind.SHELL,
        roles={"command": ArgumentRole.COMMAND},
    )

    def allowed_s(arguments: Arguments) -> float:
        return float(arguments.get("timeout_s", timeouts.shell_s))

    async def run(arguments: Arguments, context: ToolContext) -> ToolResult:
        return await _run(arguments["command"], allowed_s(arguments), context)

    return Tool(spec, run, limit_s=lambda arguments: allowed_s(arguments) + _GRACE_S, holds=True)


async def _run(command: str, timeout_s: float, context: ToolContext) -> ToolResult:
    if "\0" in command:
        raise ToolError("command: a NUL byte cannot be part of a command line", code=ErrorCode.INVALID_ARGUMENT)
    output = context.outputs.open(context.call_id)
    try:
        result = await context.sandbox.shell(
            command,
            cwd=context.shell.cwd,
            timeout_s=timeout_s,
            stdout=output.stdout,
            stderr=output.stderr,
            hold=context.hold,
        )
    finally:
        output.close()
    context.shell.cwd = _accept_cwd(result.cwd) or context.shell.cwd
    return _describe(result, timeout_s, output, context.shell.cwd)


def _accept_cwd(cwd: str) -> str:
    """The box's claim, where it is a directory name at all."""
    try:
        raw = decode_name(cwd)
    except ValueError:
        return ""
    return cwd if raw.startswith(b"/") and len(raw) <= 4096 else ""


def _describe(result: ExecResult, timeout_s: float, output: CallOutput, cwd: str) -> ToolResult:
    stdout, stderr = _read(result.stdout, output, "stdout"), _read(result.stderr, output, "stderr")
    shown, truncation = _show(stdout, stderr, output)
    success = result.status is ExecStatus.EXITED and result.exit_code == 0
    cause = find_cause(result)
    data: dict[str, object] = {"exit_code": result.exit_code, "cwd": cwd, "state": result.status.value}
    data |= {"signal": result.signal} if result.signal else {}
    data |= {"cause": cause} if cause else {}
    data |= {"background": result.background} if result.background else {}
    summary = "; ".join([_describe_end(result, timeout_s), *_describe_rest(result, output, cwd)])
    hint = (
        "" if success else _find_hint(result, cause, f"{stdout.text[-_HINTED_BYTES:]}\n{stderr.text[-_HINTED_BYTES:]}")
    )
    resources = build_call_resources(result)
    if result.status is ExecStatus.EXITED:
        return ToolResult(
            success=success,
            status=ToolStatus.OK,
            output=shown,
            summary=summary,
            recovery_hint=hint,
            truncation=truncation,
            resources=resources,
            data=data,
        )
    code, status = _FAILED.get(result.status, (ErrorCode.INTERNAL, ToolStatus.ERROR))
    failure = failed(code, summary, status=status, kind="environment", hint=hint, output=shown)
    return failure.model_copy(
        update={"truncation": truncation, "resources": resources, "data": data, "summary": summary}
    )


_FAILED = {
    ExecStatus.TIMEOUT: (ErrorCode.TIMEOUT, ToolStatus.TIMEOUT),
    ExecStatus.KILLED: (ErrorCode.CANCELLED, ToolStatus.ERROR),
    ExecStatus.SIGNALED: ("signaled", ToolStatus.ERROR),
    ExecStatus.NOT_STARTED: ("not_started", ToolStatus.ERROR),
}


def _read(capture: Capture, output: CallOutput, name: str) -> _Stream:
    if not (capture.total_bytes or capture.head_b64 or capture.tail_b64):
        return _Stream("", 0, missing=False)
    head, tail = base64.b64decode(capture.head_b64), base64.b64decode(capture.tail_b64)
    total = max(capture.total_bytes, len(head) + len(tail))
    if len(head) + len(tail) == total:
        return _Stream(_decode(head + tail), total, missing=False)
    if output.kept(name) == total <= _CLEANED_BYTES:
        return _Stream(_decode(output.read_back(name, total)), total, missing=False)
    where = output.path if name == "stdout" else f"{output.path}.stderr"
    mark = describe_cut(total - len(head) - len(tail), where if output.kept(name) else "")
    return _Stream(f"{_decode(head)}\n{mark}\n{_decode(tail)}", total, missing=True)


def _decode(raw: bytes) -> str:
    return clean(raw.decode("utf-8", "replace"))


def _show(stdout: _Stream, stderr: _Stream, output: CallOutput) -> tuple[str, Truncation | None]:
    """Both streams in one budget: errors are never pushed out by output, nor the other way round."""
    budget = SHOWN_BYTES - 1024  # for the marks
    errors = len(stderr.text.encode("utf-8", "replace"))
    for_errors = min(errors, max(budget // 2, budget - len(stdout.text.encode("utf-8", "replace"))))
    parts: list[str] = []
    cuts: list[Truncation] = []
    for stream, room, where in (
        (stdout, budget - for_errors, output.path),
        (stderr, for_errors, f"{output.path}.stderr"),
    ):
        text, cut = bound(stream.text, max_bytes=room, full_at=where, total=stream.total_bytes if stream.missing else 0)
        if cut is None and stream.missing:
            cut = Truncation(shown_bytes=len(text.encode()), total_bytes=stream.total_bytes, full_at=where)
        if cut is not None:
            cuts.append(cut)
        parts.append(text)
    shown = parts[0]
    if parts[1]:
        shown += ("" if not shown or shown.endswith("\n") else "\n") + f"[stderr]\n{parts[1]}"
    return shown, max(cuts, key=lambda cut: cut.total_bytes, default=None)


def _describe_end(result: ExecResult, timeout_s: float) -> str:
    took = f"in {result.duration_s:.2f} s"
    match result.status:
        case ExecStatus.EXITED:
            return f"exit code {result.exit_code} {took}"
        case ExecStatus.SIGNALED:
            return f"ended by signal {result.signal} ({_name_signal(result.signal)}) {took}"
        case ExecStatus.TIMEOUT:
            return f"ended after its time of {timeout_s:g} s, with all its children; the output is what came so far"
        case ExecStatus.KILLED:
            return f"stopped {took}"
        case _:
            return f"the shell could not be started (exit code {result.exit_code})"


def _describe_rest(result: ExecResult, output: CallOutput, cwd: str) -> list[str]:
    rest = [f"working directory {show_name(cwd)}"] if cwd else []
    if result.background:
        plural = "es" if result.background > 1 else ""
        rest.append(f"{result.background} background process{plural} still running")
    if result.oom_kills:
        rest.append("a process was ended because the box's memory is full")
    if result.pids_refused:
        rest.append("the box's limit of processes was reached")
    if output.problem:
        rest.append(f"the whole output could not be kept: {output.problem}")
    return rest + [visible(notice, limit=300) for notice in result.notices[:5]]


def _find_hint(result: ExecResult, cause: str, text: str) -> str:
    if cause == "timeout":
        return "do less in one call, or give a longer timeout_s; a server must be started in the background with &"
    if cause == "oom":
        return "use less memory: smaller inputs, fewer jobs at once"
    if cause == "pids_exhausted":
        return "start fewer processes at once"
    if cause == "disk_full":
        places = [_PLACES[name] for name in _PLACES if name in result.full]
        return f"no room is left in {' and '.join(places)}: delete what is not needed"
    if result.exit_code == 127:
        return "the program is not installed in this box: take another one"
    return next((hint for pattern, hint in _HINTS if re.search(pattern, text)), "")


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
