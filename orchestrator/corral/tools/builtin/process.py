"""`process`: commands that run on in the background, with pipes or in a terminal."""

from __future__ import annotations

import signal
from typing import Any

from corral.errors import ToolError
from corral.sandbox.base import TerminalSize
from corral.schema.tools import ArgumentRole, SideEffect, ToolKind, ToolResult, ToolSpec, ToolStatus
from corral.schema.visible import visible
from corral.tools.base import Arguments, Tool, ToolContext, ToolTimeouts
from corral.tools.bounds import SHOWN_BYTES, clean
from corral.tools.builtin.schema import describe, flag, number, parameters, text
from corral.tools.jobs import Entry, JobBook, settle
from corral_protocol.error import ErrorCode

_MAX_WAIT_S = 120
_USUAL_WAIT_S = {"start": 2, "write": 2, "wait": 30}
_READ_BYTES = SHOWN_BYTES - 1024  # for the marks
_NAMES = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT")
_SIGNALS = {name: signal.Signals[f"SIG{name}"] for name in _NAMES}
_ONLY = {
    "command": ("start",),
    "terminal": ("start",),
    "text": ("write",),
    "signal": ("signal",),
    "rows": ("start", "resize"),
    "columns": ("start", "resize"),
}

_DESCRIPTION = describe(
    "Runs a command in the background of the sandbox and works with it: start, write to its input, read or wait for "
    "its output, signal, resize, kill, list.",
    "for what does not end by itself or asks for input: a development server, a REPL, a debugger. With terminal: true "
    "it gets a terminal, and you are shown its screen. Write \\u0003 for Ctrl-C there, \\u0004 for Ctrl-D.",
    "for commands that end by themselves: shell waits for them and tells their exact end. Kill jobs that are not "
    "needed: a run that finishes with jobs running counts as incomplete.",
    "the job's name, its state, and what it has written since you last looked, at most the newest 31 KiB. start, write "
    "and wait come back when `until` was written, when the job has ended or has gone quiet, or after wait_s, with the "
    "state running: that is no failure.",
)


def build_process(book: JobBook, timeouts: ToolTimeouts) -> Tool:
    actions = ["start", "write", "read", "wait", "signal", "resize", "kill", "list"]
    schema = parameters(
        ["action"],
        action={"type": "string", "enum": actions, "description": "What to do."},
        job=text("Name of the job, as start told it; for everything but start and list.", maximum=20),
        command=text("start: the command line.", maximum=200_000),
        terminal=flag("start: give it a terminal."),
        text=text("write: what to type, as it is; a line needs its \\n.", maximum=100_000),
        until=text("start, write, wait: come back when this was written.", maximum=1000),
        wait_s=number("start, write, wait: seconds to wait at most.", minimum=0, maximum=_MAX_WAIT_S),
        signal={"type": "string", "enum": list(_SIGNALS), "description": "signal: which."},
        rows=number("start, resize: of the terminal, 24 if not given.", minimum=1, maximum=200),
        columns=number("start, resize: of the terminal, 80 if not given.", minimum=1, maximum=300),
    )
    spec = ToolSpec(
        name="process",
        description=_DESCRIPTION,
        parameters=schema,
        scope="box",
        side_effect=SideEffect.WORKSPACE_WRITE,
        idempotent=False,
        timeout_s=timeouts.other_s,
        kind=ToolKind.SHELL,
        # What is typed may be a command line, too: policy is shown either, and both when there are both.
        roles={"command": ArgumentRole.COMMAND, "text": ArgumentRole.COMMAND},
    )

    async def run(arguments: Arguments, context: ToolContext) -> ToolResult:
        _check(arguments)
        if arguments["action"] == "list":
            return _list(book)
        return await _act(book, arguments, context)

    return Tool(spec, run, limit_s=lambda arguments: _wait_s(arguments) + timeouts.other_s)


def _wait_s(arguments: Arguments) -> float:
    return float(arguments.get("wait_s", _USUAL_WAIT_S.get(arguments["action"], 0)))


def _check(arguments: Arguments) -> None:
    action = arguments["action"]
    for name, actions in _ONLY.items():
        # SECURITY: policy judged a command that is not the one that runs; test_a_command_is_only_for_start
        if arguments.get(name) and action not in actions:
            raise ToolError(f"{name}: not for {action}", code=ErrorCode.INVALID_ARGUMENT)
    needed = {"start": "command", "write": "text", "signal": "signal", "list": ""}.get(action, "job")
    for name in {needed, "" if action in ("start", "list") else "job"} - {""}:
        if not arguments.get(name):
            raise ToolError(f"{name}: missing, {action} needs it", code=ErrorCode.INVALID_ARGUMENT)
    if "\0" in arguments.get("command", ""):
        raise ToolError("command: a NUL byte cannot be part of a command line", code=ErrorCode.INVALID_ARGUMENT)


def _read_size(arguments: Arguments) -> TerminalSize:
    return TerminalSize(arguments.get("rows", 24), arguments.get("columns", 80))


async def _act(book: JobBook, arguments: Arguments, context: ToolContext) -> ToolResult:
    action = arguments["action"]
    if action == "start":
        terminal = _read_size(arguments) if arguments.get("terminal") else None
        entry = book.start(context.sandbox, arguments["command"], cwd=context.shell.cwd, terminal=terminal)
    else:
        entry = book.find(arguments["job"])
    # What came before a line was typed is no answer to it; a wait looks at all that was not shown yet.
    place = entry.job.output.total if action == "write" else entry.seen
    match action:
        case "write":
            entry.job.write(arguments["text"].encode("utf-8", "replace"))
        case "signal":
            entry.job.signal(_SIGNALS[arguments["signal"]])
        case "resize":
            if entry.screen is None:
                raise ToolError(f"{entry.name} has no terminal", code=ErrorCode.INVALID_ARGUMENT)
            size = _read_size(arguments)
            entry.job.resize(size)
            entry.screen.resize(size.rows, size.columns)
        case "kill":
            await entry.job.kill()
        case _:
            pass
    until = arguments.get("until", "").encode("utf-8", "replace")
    is_seen = await settle(entry, wait_s=_wait_s(arguments), until=until, start=place)
    return _describe(entry, until=until, is_seen=is_seen)


def _describe(entry: Entry, *, until: bytes, is_seen: bool) -> ToolResult:
    job, ring = entry.job, entry.job.output
    start, data = ring.read(max(entry.seen, ring.total - _READ_BYTES), _READ_BYTES)
    missed = start - entry.seen
    entry.seen = ring.total
    state = "still running" if job.is_running else f"ended: {entry.state}"
    parts = [f"{entry.name} {state}"]
    if until:
        parts.append("the text was written" if is_seen else "the text was not written so far")
    if entry.screen is not None:
        shown = entry.screen.render()
    else:
        shown = clean(data.decode("utf-8", "replace"))
        parts += [f"{missed} bytes before these left out"] if missed else []
    if job.error is not None:
        parts.append(visible(job.error.message, limit=300))
    facts: dict[str, Any] = {"job": entry.name, "state": entry.state, "total_bytes": ring.total}
    return ToolResult(success=True, status=ToolStatus.OK, output=shown, summary="; ".join(parts), data=facts)


def _list(book: JobBook) -> ToolResult:
    lines = [
        f"{entry.name}  {entry.state}  {entry.job.output.total} bytes  {visible(entry.command, limit=100)}"
        for entry in book.entries
    ]
    summary = f"{len(book.running)} of {len(lines)} jobs running"
    return ToolResult(success=True, status=ToolStatus.OK, output="\n".join(lines), summary=summary)
