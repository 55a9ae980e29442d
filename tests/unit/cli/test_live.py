"""What a person sees of a run: every word of model and box escaped, every step there."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.life_box import INFO

from corral.agent.run import Ending, Outcome
from corral.agent.stop import StopReason
from corral.cli.live import LiveView
from corral.cli.output import paint, plural
from corral.cli.summary import show_end
from corral.errors import BoxLost
from corral.record.line import format_time
from corral.schema.events import (
    ApprovalAnswered,
    CallDecided,
    Event,
    GuardTripped,
    ModelAnswered,
    Payload,
    ToolFinished,
    ToolStarted,
)
from corral.schema.patch import Action, FileChange, Finding, NotExported, Patch, Reason, Severity
from corral.schema.size import show_size

EVIL = "x\x1b]0;t\x07\u202e\r\ny"
Text = pytest.CaptureFixture[str]


def event(payload: Payload) -> Event:
    source = payload.source
    return Event(seq=1, at=format_time(0), prev="0" * 64, kind=payload.kind, source=source, payload=payload, hash="0")


STEPS: list[Payload] = [
    ModelAnswered(step=1, request_id="r", model=EVIL, text=EVIL, cost_usd=0.01, latency_s=1.5),
    ToolStarted(call_id="c", tool="shell", arguments={"command": EVIL}),
    ToolStarted(call_id="c", tool="move_file", arguments={"target": "b", "source": EVIL}),
    CallDecided(step=1, call_id="c", tool="shell", effect="deny", reason=EVIL),
    ApprovalAnswered(call_id="c", digest="0" * 64, approved=False),
    GuardTripped(guard="repetition", action="refuse", reason=EVIL),
    ToolFinished(call_id="c", tool="shell", status="ok", success=True, summary=EVIL, duration_s=0.5),
    ToolFinished(call_id="c", tool="shell", status="error", success=False),
]


def test_every_step_is_shown_and_none_acts_on_the_terminal(capsys: Text) -> None:
    view = LiveView()
    view.box(INFO)
    for step in STEPS:
        view.event(event(step))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(char == "\n" or char.isprintable() for char in shown.err), ascii(shown.err)
    lines = shown.err.splitlines()
    assert lines[0] == "box ready in 0.0 s · overlay · no network"
    assert lines[1].endswith("1.5 s · $0.0100")
    assert any(line.startswith("  ▸ shell x\\x1b]0;t") for line in lines)
    assert any(line.startswith("  ▸ move_file source: x\\x1b]0;t") and "target: b" in line for line in lines)
    assert any(line.startswith("  deny shell: ") for line in lines) and "  not approved" in lines
    assert [line.split()[0] for line in lines if "0.50 s" in line or "error" in line] == ["✓", "✗"]


def test_a_long_answer_is_cut_to_a_few_lines(capsys: Text) -> None:
    LiveView().event(event(ModelAnswered(step=1, request_id="r", model="m", text="word " * 2000)))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 8 and lines[-1] == "  ..."


def end(capsys: Text, **more: Any) -> str:
    given: dict[str, Any] = {
        "ending": Ending(StopReason.FINISHED, summary=EVIL),
        "box": INFO,
        "patch": None,
        "error": None,
        "duration_s": 2.0,
    }
    show_end(Outcome(**given | more), "run-1", None)
    shown = capsys.readouterr().err
    assert all(char == "\n" or char.isprintable() for char in shown), ascii(shown)
    return shown


def test_the_end_says_what_changed(capsys: Text) -> None:
    odd = "a\x1b[2J\nb"
    patch = Patch(
        sha256="0",
        size=9,
        added=3,
        removed=1,
        files=(
            FileChange(path=odd, action=Action.ADDED, added=3, removed=0),
            FileChange(path="new", old_path="old", action=Action.RENAMED, removed=1),
            FileChange(path="run", action=Action.MODE, old_mode="100644", new_mode="100755", binary=True),
        ),
        not_exported=(NotExported(path="pipe\x07", reason=Reason.SPECIAL_FILE),),
        findings=(Finding(kind="ci", severity=Severity.ASK, path=odd, line=3, text="runs in CI"),),
    )
    shown = end(capsys, patch=patch, ending=Ending(StopReason.STUCK))
    assert "  3 files changed, +3 -1\n" in shown and "the patch is incomplete" in shown
    assert "R old -> new  +0 -1\n" in shown
    assert "M run  binary, mode 100644 -> 100755\n" in shown
    assert "not in the patch: 1 special_file" in shown and "look at" in shown and "[ci]" in shown


def test_the_end_of_an_unchanged_or_broken_run(capsys: Text) -> None:
    assert "  nothing changed\n" in end(capsys)
    broken = end(capsys, box=None, error=BoxLost("gone", hint="look"), ending=Ending(StopReason.BOX_LOST))
    assert broken.startswith("corral: gone\n  hint: look\n") and "nothing changed" not in broken


def test_no_colour_goes_where_no_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paint("x", "red") == "x"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint("x", "red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint("x", "red") == "x"


def test_numbers_for_people() -> None:
    assert [plural(0, "file"), plural(1, "file"), plural(2, "file")] == ["0 files", "1 file", "2 files"]
    assert [show_size(0), show_size(1536), show_size(5 << 30)] == ["0 B", "1.5 KiB", "5.0 GiB"]
