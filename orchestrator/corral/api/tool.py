"""The calls of a program as tools: the same names, rules and events as a model's calls, with typed values beside them.

A call's arguments, as policy and record see them, go through the ToolExecutor; what really runs is a closure that the
tool finds by the call's id. So a program's bytes, sinks and streams need no place in a JSON schema.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from corral.errors import ToolError
from corral.sandbox.base import Sandbox
from corral.schema.tools import ArgumentRole, SideEffect, ToolCall, ToolKind, ToolResult, ToolSpec
from corral.tools.base import Arguments, Tool, ToolContext, ToolTimeouts
from corral.tools.builtin import build_tools
from corral.tools.builtin.schema import number, parameters, path, text
from corral.tools.executor import ToolExecutor
from corral.tools.jobs import JobBook

T = TypeVar("T")

BUILT_IN = (
    "read_file",
    "list_files",
    "search",
    "edit_file",
    "apply_patch",
    "move_file",
    "delete_file",
    "diff",
    "process",
)
GRACE_S = 15.0  # for the box to end a command's whole tree and answer
MAX_COMMAND = 1 << 20

Work = Callable[[Arguments, ToolContext], Awaitable[tuple[Any, ToolResult]]]


@dataclass
class Desk:
    """The calls that are under way: what each does, and what came of it."""

    works: dict[str, Work] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, ToolError] = field(default_factory=dict)

    def tool(self, spec: ToolSpec, *, limit_s: Callable[[Arguments], float] | None = None) -> Tool:
        """A tool of that spec that does what its call brought along."""

        async def run(arguments: Arguments, context: ToolContext) -> ToolResult:
            try:
                value, result = await self.works[context.call_id](arguments, context)
            except ToolError as error:
                self.errors[context.call_id] = error
                raise
            self.values[context.call_id] = value
            return result

        return Tool(spec, run, limit_s=limit_s)

    async def call(self, executor: ToolExecutor, call: ToolCall, work: Work, step: int) -> Any:
        """Run one call. Raises ToolError for a failure or a denial, and what the executor raises."""
        self.works[call.id] = work
        try:
            result = await executor.execute(call, step=step)
            if (error := self.errors.get(call.id)) is not None:
                raise error
            if call.id not in self.values:
                raise explain_refusal(result)
            return self.values[call.id]
        finally:
            for kept in (self.works, self.values, self.errors):
                kept.pop(call.id, None)


def explain_refusal(result: ToolResult) -> ToolError:
    """The answer to a call that was not run, as the error of a program."""
    error = result.error
    if error is None:
        return ToolError(result.summary or "the call gave nothing", code="internal")
    return ToolError(error.message, hint=result.recovery_hint or None, code=error.code)


def build_specs(timeouts: ToolTimeouts, jobs: JobBook) -> dict[str, tuple[ToolSpec, Tool | None]]:
    """Every tool of a program: its spec, and the built-in tool that does it where there is one."""
    found: dict[str, tuple[ToolSpec, Tool | None]] = {
        tool.spec.name: (tool.spec, tool)
        for tool in build_tools(_nothing, timeouts=timeouts, jobs=jobs)
        if tool.spec.name in BUILT_IN
    }
    own = (
        _command_spec("shell", "Runs a command line in the box's shell.", timeouts),
        _command_spec("exec", "Runs a program, without a shell.", timeouts),
        _file_spec("write_file", "Writes a whole file.", timeouts),
        _file_spec("store_file", "Streams bytes into a file.", timeouts),
        _file_spec("fetch_file", "Reads the bytes of a file.", timeouts, kind=ToolKind.READ),
    )
    return found | {spec.name: (spec, None) for spec in own}


def build_registry_tools(desk: Desk, specs: dict[str, tuple[ToolSpec, Tool | None]]) -> list[Tool]:
    return [
        desk.tool(spec, limit_s=_command_limit if "timeout_s" in spec.parameters["required"] else None)
        for spec, _ in specs.values()
    ]


def through(tool: Tool) -> Work:
    """The work of a built-in tool: its own result for the record, and the typed value it got from the box."""

    async def work(arguments: Arguments, context: ToolContext) -> tuple[Any, ToolResult]:
        tap = _Tap(context.sandbox)
        result = await tool.run(arguments, replace(context, sandbox=cast(Sandbox, tap)))
        if tap.value is None:
            raise ToolError("only files of the box can be used here", code="not_found", hint="outputs are in the run")
        return tap.value, result

    return work


class _Tap:
    """A box that remembers what its last operation returned."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.value: Any = None

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        operation = getattr(self._sandbox, name)

        async def forward(*args: Any, **options: Any) -> Any:
            self.value = await operation(*args, **options)
            return self.value

        return forward


def _command_spec(name: str, description: str, timeouts: ToolTimeouts) -> ToolSpec:
    schema = parameters(
        ["command", "timeout_s"],
        command=text("The command line.", minimum=1, maximum=MAX_COMMAND),
        cwd=path("Where it runs.", empty=True),
        env={"type": "array", "items": {"type": "string"}, "description": "Names of the variables it is given."},
        timeout_s={"type": "number", "minimum": 0.001, "maximum": 7 * 86_400, "description": "Seconds it may take."},
    )
    return ToolSpec(
        name=name,
        description=description,
        parameters=schema,
        scope="box",
        side_effect=SideEffect.WORKSPACE_WRITE,
        idempotent=False,
        timeout_s=timeouts.shell_s,
        kind=ToolKind.SHELL,
        roles={"command": ArgumentRole.COMMAND},
    )


def _file_spec(name: str, description: str, timeouts: ToolTimeouts, *, kind: ToolKind = ToolKind.WRITE) -> ToolSpec:
    reads = kind is ToolKind.READ
    return ToolSpec(
        name=name,
        description=description,
        parameters=parameters(
            ["path"],
            path=path("The file."),
            size=number("Bytes.", minimum=0),
            sha256=text("Digest of the bytes, where they are known."),
            offset=number("First byte.", minimum=0),
        ),
        scope="workspace",
        side_effect=SideEffect.READ_ONLY if reads else SideEffect.WORKSPACE_WRITE,
        idempotent=reads,
        timeout_s=max(timeouts.file_s, timeouts.shell_s),  # any size: as long as a command
        kind=kind,
        roles={"path": ArgumentRole.PATH},
    )


def _command_limit(arguments: Arguments) -> float:
    return float(arguments["timeout_s"]) + GRACE_S


async def _nothing() -> str:
    return ""
