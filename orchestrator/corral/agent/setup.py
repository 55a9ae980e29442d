"""The set-up of a run: a command line of the user's that goes before the agent, recorded like any call."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from corral.agent.command import describe_result
from corral.agent.run import Body, Ending, RunRecord
from corral.errors import SetupFailed
from corral.sandbox.base import Sandbox
from corral.sandbox.cause import find_cause
from corral.sandbox.used import build_call_resources
from corral.schema.events import ToolFinished, ToolStarted
from corral.schema.text import digest
from corral.schema.tools import ToolStatus
from corral.schema.visible import visible
from corral_protocol.message import ExecResult, ExecStatus

CALL_ID = "setup"
TIME_LIMIT_S = 3600.0
_TAIL_CHARS = 300


@dataclass
class Setup:
    """Runs `command`, then `then()` (the phase is over), then the body. A failure of the command ends the run."""

    command: str
    record: RunRecord
    then: Callable[[], Awaitable[None]]
    body: Body

    async def __call__(self, sandbox: Sandbox) -> Ending:
        """Raises SetupFailed, and what the body raises."""
        started = ToolStarted(
            call_id=CALL_ID,
            tool="setup",
            arguments={"command": self.command},
            arguments_sha256=digest(self.command),
            side_effect="workspace_write",
            timeout_s=TIME_LIMIT_S,
        )
        self.record.append(started)
        result = await sandbox.shell(self.command, timeout_s=TIME_LIMIT_S)
        # SECURITY: nothing that the set-up left running keeps what only the set-up may reach
        # (test_network_phases).
        await sandbox.kill_all()
        succeeded = result.status is ExecStatus.EXITED and result.exit_code == 0
        self.record.append(_describe_end(result, succeeded=succeeded))
        if not succeeded:
            raise SetupFailed(f"the set-up failed: {describe_result(result)}", hint=_show_tail(result) or None)
        await self.then()
        return await self.body(sandbox)


def _describe_end(result: ExecResult, *, succeeded: bool) -> ToolFinished:
    return ToolFinished(
        call_id=CALL_ID,
        tool="setup",
        status=(ToolStatus.OK if succeeded else ToolStatus.ERROR).value,
        success=succeeded,
        summary=describe_result(result),
        output=_show_tail(result),
        output_bytes=result.stdout.total_bytes + result.stderr.total_bytes,
        exit_code=result.exit_code if result.status is ExecStatus.EXITED else None,
        signal=result.signal or None,
        cause=find_cause(result),
        duration_s=result.duration_s,
        resources=build_call_resources(result),
    )


def _show_tail(result: ExecResult) -> str:
    """The last words of the command, on one line."""
    for capture in (result.stderr, result.stdout):
        text = base64.b64decode(capture.tail_b64 or capture.head_b64).decode("utf-8", "replace").strip()
        if text:
            return visible(text[-_TAIL_CHARS:])
    return ""
