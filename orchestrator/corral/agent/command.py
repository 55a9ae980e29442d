"""The body of `corral exec`: one command of the user's in the box, recorded like any tool call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from corral.agent.limit import Count
from corral.agent.run import Ending, RunRecord
from corral.agent.stop import StopReason
from corral.errors import ToolError
from corral.sandbox.base import CALL, BoxInfo, ExecHandle, Sandbox, Sink, TerminalSize
from corral.sandbox.cause import find_cause
from corral.sandbox.used import build_call_resources
from corral.schema.events import ToolFinished, ToolStarted
from corral.schema.tools import ToolStatus
from corral.schema.visible import visible
from corral_protocol.error import ErrorCode
from corral_protocol.message import ExecResult, ExecStatus
from corral_protocol.name import decode_name

CALL_ID = "exec"
TIME_LIMIT_EXIT = 124


@dataclass
class Command:
    """What to run and where its streams go. `result` is set when it has ended."""

    argv: list[bytes]
    """Empty for the shell of the box."""
    record: RunRecord
    cwd: str = ""
    env: dict[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    stdin: AsyncIterator[bytes] | None = None
    stdout: Sink | None = None
    stderr: Sink | None = None
    terminal: TerminalSize | None = None
    handle: ExecHandle | None = None
    result: ExecResult | None = None

    async def __call__(self, sandbox: Sandbox) -> Ending:
        """Run it to its end. The command's own failure is a result, never an error."""
        if not self.argv:
            self.argv = [find_shell(sandbox.info)]
        self.record.append(self._started())
        CALL.set(CALL_ID)
        result = await sandbox.exec(
            list(self.argv),
            cwd=self.cwd,
            env=self.env,
            timeout_s=self.timeout_s,
            stdin=self.stdin,
            stdout=self.stdout,
            stderr=self.stderr,
            stream_limit=-1,
            kill_background=True,
            terminal=self.terminal,
            handle=self.handle,
        )
        self.result = result
        self.record.append(self._finished(result))
        return Ending(
            _reason(result),
            exit_code=exit_code(result),
            summary=describe_result(result),
            count=Count.of_command(result),
        )

    def _started(self) -> ToolStarted:
        shown = [visible(part) for part in self.argv]
        digest = hashlib.sha256(json.dumps(shown).encode()).hexdigest()
        return ToolStarted(
            call_id=CALL_ID,
            tool="exec",
            arguments={"argv": shown, "env": sorted(self.env), **({"terminal": True} if self.terminal else {})},
            arguments_sha256=digest,
            side_effect="workspace_write",
            cwd=self.cwd,
            timeout_s=self.timeout_s,
        )

    def _finished(self, result: ExecResult) -> ToolFinished:
        status = {ExecStatus.TIMEOUT: ToolStatus.TIMEOUT, ExecStatus.EXITED: ToolStatus.OK}.get(
            result.status, ToolStatus.ERROR
        )
        return ToolFinished(
            call_id=CALL_ID,
            tool="exec",
            status=status.value,
            success=result.status is ExecStatus.EXITED and result.exit_code == 0,
            summary=describe_result(result),
            output_bytes=result.stdout.total_bytes + result.stderr.total_bytes,
            exit_code=result.exit_code if result.status is ExecStatus.EXITED else None,
            signal=result.signal or None,
            cause=find_cause(result),
            duration_s=result.duration_s,
            resources=build_call_resources(result),
            facts={
                "oom_kills": result.oom_kills,
                "pids_refused": result.pids_refused,
            },
        )


def find_shell(info: BoxInfo) -> bytes:
    """The shell of a box that has started. Raises ToolError when its image has none."""
    shell = info.facts.get("shell", "")
    if not shell:
        hint = "name a program of the image: corral exec -t -- PROGRAM"
        raise ToolError("this image has no shell", code=ErrorCode.UNSUPPORTED, hint=hint)
    return decode_name(shell)


def exit_code(result: ExecResult) -> int:
    """SPEC: the command's own, 128+n on signal, 124 time limit, 126 not runnable, 127 not found."""
    if result.status is ExecStatus.TIMEOUT:
        return TIME_LIMIT_EXIT
    if result.status in (ExecStatus.SIGNALED, ExecStatus.KILLED):
        return 128 + (result.signal or 9)
    return result.exit_code


def describe_result(result: ExecResult) -> str:
    """How the command ended, in a few words."""
    match result.status:
        case ExecStatus.EXITED:
            return f"exit {result.exit_code}"
        case ExecStatus.SIGNALED:
            return f"ended by signal {result.signal}"
        case ExecStatus.TIMEOUT:
            return "time limit reached"
        case ExecStatus.KILLED:
            return "killed"
        case _:
            return "not found" if result.exit_code == 127 else "could not be started"


def _reason(result: ExecResult) -> StopReason:
    return StopReason.TIME_LIMIT if result.status is ExecStatus.TIMEOUT else StopReason.FINISHED
