"""`corral log` and `corral runs` over records and run directories made here."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from corral.cli import log, runs
from corral.errors import ConfigError
from corral.record import RecordLog
from corral.schema.events import Actor, PlanCreated, RunFinished, RunStarted
from corral.store.run_dir import RunDir, RunMeta, find_runs_root

Text = pytest.CaptureFixture[str]


def make_run(*, ended: bool = True, outcome: str = "finished", command: str = "make test") -> tuple[str, RunDir]:
    run_dir = RunDir.create()
    actor = Actor(type="os_user", name="me")
    with RecordLog.open(run_dir.record) as record:
        record.append(RunStarted(run_id=run_dir.run_id, door="run", goal=command, actor=actor, host="h", version="0"))
        record.append(PlanCreated(step=1, text="evil\x1b]0;t\x07\u202e"))
        if ended:
            record.append(RunFinished(stop_reason="finished", exit_code=0))
    meta = RunMeta(run_id=run_dir.run_id, workspace=b"/w/\xff\x1b", started_at="2026-01-01T00:00:00", command=command)
    run_dir.write_meta(replace(meta, outcome=outcome, ended_at="x" if ended else ""))
    run_dir.close()
    return run_dir.run_id, run_dir


def test_show_is_a_line_an_event_and_safe(capsys: Text) -> None:
    run_id, _ = make_run()
    assert log.show(run_id) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 3
    assert "run.started" in shown and all(char == "\n" or char.isprintable() for char in shown)


def test_show_as_json_is_the_events(capsys: Text) -> None:
    run_id, run_dir = make_run()
    assert log.show(run_id, json=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["run.started", "plan.created", "run.finished"]
    assert "\n".join(lines).isascii()
    written = [json.loads(line) for line in run_dir.record.read_text().splitlines()]
    assert [(one["hash"], one["payload"]) for one in written] == [
        (one["hash"], one["payload"]) for one in map(json.loads, lines)
    ]


def test_verify_says_intact_with_the_head(capsys: Text) -> None:
    run_id, _ = make_run()
    assert log.verify(run_id) == 0
    assert capsys.readouterr().out.startswith("intact: 3 events, head ")
    assert log.verify(run_id, json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["finished"], told["events"], told["problem"]) == (True, True, 3, None)


def test_verify_tells_a_record_without_its_end(capsys: Text) -> None:
    run_id, _ = make_run(ended=False)
    assert log.verify(run_id) == 0
    assert "the run's last event is missing" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["edit", "drop", "swap"])
def test_a_changed_record_is_named_by_line(capsys: Text, change: str) -> None:
    run_id, run_dir = make_run()
    lines = run_dir.record.read_text().splitlines()
    if change == "edit":
        lines[1] = lines[1].replace("evil", "good")
    elif change == "drop":
        del lines[1]
    else:
        lines[1], lines[2] = lines[2], lines[1]
    run_dir.record.write_text("\n".join(lines) + "\n")
    assert log.verify(run_id) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("NOT INTACT: ") and "line 2" in shown
    assert log.verify(run_id, json=True) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_follow_ends_with_the_run(capsys: Text) -> None:
    run_id, _ = make_run()
    assert log.follow(run_id) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert log.follow(run_id, json=True) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["kind"] == "run.finished"


@pytest.mark.parametrize("run_id", ["nothing", "../x", "", "20260101-000000-abcdef"])
def test_a_run_that_is_not_there_is_the_users_mistake(run_id: str) -> None:
    for command in (log.show, log.verify, log.follow):
        with pytest.raises(ConfigError, match="there is no run"):
            command(run_id)
    with pytest.raises(ConfigError, match="there is no run"):
        runs.rm(run_id)


def test_no_runs_is_said(capsys: Text) -> None:
    assert runs.list_all() == 0
    assert capsys.readouterr().out == "no runs are kept here\n"
    assert runs.list_all(json=True) == 0
    assert capsys.readouterr().out == ""


def test_runs_are_listed_with_how_they_ended(capsys: Text) -> None:
    done, _ = make_run(outcome="exit 3", command="x" * 200)
    killed, _ = make_run(ended=False, outcome="")
    alive, run_dir = make_run(ended=False, outcome="")
    broken, broken_dir = make_run()
    (broken_dir.path / "meta.json").write_text("{")
    with RecordLog.open(run_dir.record):
        assert runs.list_all() == 0
        text = capsys.readouterr().out
        assert runs.list_all(json=True) == 0
        rows = {row["run"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert all(char == "\n" or char.isprintable() for char in text)
    assert {run_id: row["outcome"] for run_id, row in rows.items() if run_id != broken} == {
        done: "exit 3",
        killed: "killed",
        alive: "running",
    }
    assert "no usable meta.json" in rows[broken]["outcome"]
    assert (rows[done]["workspace"], len(rows[done]["command"])) == ("/w/\\xff\\x1b", 200)
    assert max(map(len, text.splitlines())) < 400 and "…" in text


def test_a_removed_run_is_gone(capsys: Text) -> None:
    first, one = make_run()
    second, other = make_run()
    assert runs.rm(first, second) == 0
    assert capsys.readouterr().out == f"removed {first}\nremoved {second}\n"
    assert not one.path.exists() and not other.path.exists() and os.listdir(find_runs_root()) == []


def test_a_run_in_use_is_not_removed() -> None:
    run_id, _ = make_run()
    with RunDir.open(run_id), pytest.raises(ConfigError, match="is in use"):
        runs.rm(run_id)
    assert (find_runs_root() / run_id / "record.jsonl").exists()


def test_runs_of_another_data_directory_are_not_seen(
    capsys: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    runs.list_all()
    assert capsys.readouterr().out == "no runs are kept here\n"
