from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from tests.docs.event_reference import TARGET, render_reference

from corral.record import RecordLog
from corral.schema.events import EventKind, PlanCreated


def test_event_reference_is_what_the_models_say() -> None:
    assert TARGET.read_text() == render_reference(), "run: python tests/docs/event_reference.py"


def test_event_reference_names_every_kind() -> None:
    text = TARGET.read_text()
    assert [kind for kind in EventKind if f"## `{kind.value}`" not in text] == []


def test_documented_way_to_check_a_line_holds(tmp_path: Path) -> None:
    with RecordLog.open(tmp_path / "record.jsonl") as log:
        event = log.append(PlanCreated(step=1, text='tricky ,"hash": text'))
    command = """printf '%s}' "${line%,\\"hash\\":*}" | sha256sum"""
    assert command in TARGET.read_text()
    line = (tmp_path / "record.jsonl").read_text().rstrip("\n")
    done = subprocess.run(["bash", "-c", command], env={"line": line, "PATH": "/usr/bin:/bin"}, capture_output=True)
    assert done.stdout.split()[0].decode() == event.hash
    body = line[: line.rindex(',"hash"')] + "}"
    assert hashlib.sha256(body.encode()).hexdigest() == event.hash
