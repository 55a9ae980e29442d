"""The completion condition: the user's own command, run when the model says it has finished."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from corral.context.untrusted import wrap_untrusted
from corral.redact import Redactor
from corral.sandbox.base import CALL, Sandbox
from corral.schema.events import Source, ToolFinished, ToolStarted
from corral.schema.tools import ToolResult, ToolStatus
from corral.tools.base import Recorder
from corral.tools.bounds import clean
from corral.tools.result import failed
from corral_protocol.message import ExecResult, ExecStatus

NAME = "until"
_SHOWN_BYTES = 8 << 10


@dataclass
class Completion:
    """`check()` gives None when the command exits with 0, else the failure as the model is told it."""

    command: str
    sandbox: Sandbox
    recorder: Recorder
    timeout_s: float = 600.0
    redactor: Redactor = field(default_factory=Redactor)
    _checks: int = field(default=0, init=False)

    async def check(self) -> ToolResult | None:
        self._checks += 1
        call_id = f"{NAME}-{self._checks}"
        await self.recorder.append_async(
            ToolStarted(
                call_id=call_id,
                tool=NAME,
                arguments={"command": self.command},
                side_effect="workspace_write",
                timeout_s=self.timeout_s,
            )
        )
        CALL.set(call_id)
        result = await self.sandbox.shell(self.command, timeout_s=self.timeout_s)
        holds = result.status is ExecStatus.EXITED and result.exit_code == 0
        text = self.redactor.text(clean(_last_output(result)))
        await self.recorder.append_async(
            ToolFinished(
                call_id=call_id,
                tool=NAME,
                status=(ToolStatus.TIMEOUT if result.status is ExecStatus.TIMEOUT else ToolStatus.OK).value,
                success=holds,
                summary=_describe(result),
                output=text,
                exit_code=result.exit_code,
                duration_s=result.duration_s,
            ),
            source=Source.BOX,
        )
        if holds:
            return None
        return failed(
            "not_verified",
            f"the completion command did not succeed: {_describe(result)}",
            kind="parameter",
            hint="the run goes on: look at its output, mend what is wrong, then call finish again",
            output=wrap_untrusted(text, NAME) if text else "",
        )


def _describe(result: ExecResult) -> str:
    if result.status is ExecStatus.EXITED:
        return f"exit code {result.exit_code}"
    return f"{result.status.value}" + (f" by signal {result.signal}" if result.signal else "")


def _last_output(result: ExecResult) -> str:
    parts = []
    for capture in (result.stdout, result.stderr):
        kept = base64.b64decode(capture.tail_b64 or capture.head_b64)
        parts.append(kept[-_SHOWN_BYTES:].decode("utf-8", "replace"))
    return "\n".join(part for part in parts if part)
