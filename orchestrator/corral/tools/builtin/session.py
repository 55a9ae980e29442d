"""`diff` and `finish`: what the session itself knows and decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from corral.schema.tools import SideEffect, ToolKind, ToolResult, ToolSpec, ToolStatus
from corral.tools.base import Arguments, Tool, ToolContext, ToolTimeouts
from corral.tools.builtin.schema import describe, parameters, text

FINISH = "finish"

_DIFF = describe(
    "Shows every change made to the workspace so far, as a patch.",
    "to check your work before you finish.",
    "to see what a single edit did: the edit's own result shows that.",
    "a unified diff against the workspace as it was at the start; nothing when there is no change.",
)
_FINISH = describe(
    "Ends the run. Nothing else does: text without a tool call does not.",
    "when the task is done and checked, or when it cannot be done.",
    "while calls you still need are open, or to ask something.",
    "whether the run ended. When a completion command is set and fails, its output comes back and the run goes on.",
)


def build_diff(current_diff: Callable[[], Awaitable[str]], timeouts: ToolTimeouts) -> Tool:
    spec = ToolSpec(
        name="diff",
        description=_DIFF,
        parameters=parameters(),
        scope="workspace",
        side_effect=SideEffect.READ_ONLY,
        idempotent=True,
        timeout_s=timeouts.other_s,
        kind=ToolKind.SESSION,
    )

    async def run(arguments: Arguments, context: ToolContext) -> ToolResult:
        patch = await current_diff()
        summary = f"{len(patch.encode('utf-8', 'replace'))} bytes of changes" if patch else "no changes so far"
        return ToolResult(success=True, status=ToolStatus.OK, output=patch, summary=summary)

    return Tool(spec, run)


def build_finish(timeouts: ToolTimeouts) -> Tool:
    schema = parameters(
        ["summary"],
        summary=text("What was done and how it was checked, or what is missing.", minimum=1, maximum=20_000),
    )
    spec = ToolSpec(
        name=FINISH,
        description=_FINISH,
        parameters=schema,
        scope="session",
        side_effect=SideEffect.READ_ONLY,
        idempotent=True,
        timeout_s=timeouts.other_s,
        kind=ToolKind.SESSION,
    )
    return Tool(spec, _finish)


async def _finish(arguments: Arguments, context: ToolContext) -> ToolResult:
    """Only takes the words: whether the run ends is the loop's to decide."""
    return ToolResult(success=True, status=ToolStatus.OK, output=arguments["summary"], summary="finish")
