from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tools.fake_box import FakeBox, Run

from corral.policy import PolicyEngine, SessionPolicy
from corral.record import RecordLog, read_events
from corral.redact import Redactor
from corral.schema.events import Event
from corral.schema.policy import Approver, Mode, PolicySession, Preset
from corral.schema.tools import Permission, ToolCall, ToolResult
from corral.tools import OutputStore, Tool, ToolExecutor, ToolRegistry, build_tools


async def the_diff() -> str:
    return "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"


@dataclass
class Bench:
    """One session's executor, its box and its record."""

    executor: ToolExecutor
    box: FakeBox
    record: Path
    log: RecordLog
    outputs: OutputStore
    count: int = 0

    async def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        self.count += 1
        return await self.executor.execute(ToolCall(id=f"call_{self.count}", name=tool, arguments=arguments), step=1)

    def events(self) -> list[Event]:
        return list(read_events(self.record))

    def kinds(self) -> list[str]:
        return [event.kind.value for event in self.events()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    logs: list[RecordLog] = []

    def build(
        *runs: Run,
        preset: Preset = Preset.AUTO,
        mode: Mode = Mode.BUILD,
        tools: tuple[Tool, ...] = (),
        approver: Approver | None = None,
        wait_s: float = 600.0,
        hide: bool = True,
        redactor: Redactor | None = None,
    ) -> Bench:
        box = FakeBox(*runs)
        record = tmp_path / "record.jsonl"
        log = RecordLog.open(record, redactor=redactor)
        logs.append(log)
        registry = ToolRegistry([*build_tools(the_diff), *tools])
        outputs = OutputStore(tmp_path / "outputs")
        executor = ToolExecutor(
            registry.select(permission=Permission.USER, mode=mode) if hide else registry,
            decider=SessionPolicy(PolicyEngine.load_preset(preset), PolicySession(id="s", preset=preset, mode=mode)),
            recorder=log,
            sandbox=box,  # type: ignore[arg-type]
            outputs=outputs,
            approver=approver,
            approval_wait_s=wait_s,
            redactor=redactor,
        )
        return Bench(executor, box, record, log, outputs)

    yield build
    for log in logs:
        log.close()
