from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.life_box import INFO

from corral.agent.run import Ending, Outcome
from corral.agent.stop import StopReason
from corral.app import ExecOutcome
from corral.cli.exec import _to_json, check_timeout, parse_env, save_patch
from corral.cli.run import check_positive
from corral.errors import BoxLost, ConfigError, CorralError
from corral.schema.patch import Action, FileChange, Patch
from corral.schema.resources import CallResources, RunResources
from corral_protocol.message import Capture, ExecResult, ExecStatus


def test_variables_are_given_or_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "a=b")
    assert parse_env(["A=1", "EMPTY=", "MINE", "EQ=x=y", "A=2"]) == {"A": "2", "EMPTY": "", "MINE": "a=b", "EQ": "x=y"}
    assert parse_env([]) == {}


@pytest.mark.parametrize("pair", ["", "=x", "1A=x", "A-B=x", "A B", "É=1", "A\n=1"])
def test_what_is_no_variable_is_refused(pair: str) -> None:
    with pytest.raises(ConfigError, match="is not a variable's name"):
        parse_env([pair])


def test_a_variable_that_is_not_set_cannot_be_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MISSING", raising=False)
    with pytest.raises(ConfigError, match="'MISSING' is not set here") as error:
        parse_env(["MISSING"])
    assert error.value.hint == "-e MISSING=VALUE"


@pytest.mark.parametrize("value", [0, -1, 1e9, float("nan"), float("inf")])
def test_a_time_limit_is_a_number_above_zero(value: float) -> None:
    with pytest.raises(ConfigError, match="--timeout"):
        check_timeout(value)


def test_limits_are_above_zero() -> None:
    assert (check_timeout(None), check_timeout(0.5), check_positive("--steps", 3)) == (None, 0.5, 3)
    with pytest.raises(ConfigError, match="--steps 0 is not above 0"):
        check_positive("--steps", 0)


def test_the_patch_goes_where_it_is_wanted(tmp_path: Path) -> None:
    kept, target = tmp_path / "kept", tmp_path / "out.diff"
    kept.write_bytes(b"diff\n\xff")
    save_patch(kept, target)
    assert target.read_bytes() == b"diff\n\xff"
    save_patch(None, target)
    assert target.read_bytes() == b""
    with pytest.raises(ConfigError, match="cannot write the patch") as error:
        save_patch(kept, tmp_path / "no" / "out.diff")
    assert error.value.hint == f"the run kept it as {kept}"
    with pytest.raises(ConfigError, match="cannot write the patch"):
        save_patch(kept, tmp_path)


def outcome(**more: Any) -> ExecOutcome:
    given: dict[str, Any] = {
        "ending": Ending(StopReason.FINISHED, exit_code=3, summary="exit 3"),
        "box": INFO,
        "patch": Patch(sha256="5" * 64, size=1, files=(FileChange(path="a", action=Action.ADDED, added=1),)),
        "error": None,
        "duration_s": 1.23456,
        "door": "exec",
        "resources": RunResources(wall_s=1.5),
    }
    result = ExecResult(
        status=ExecStatus.EXITED,
        exit_code=3,
        signal=0,
        cwd="",
        stdout=Capture("aGk/", "", 3, 3),
        stderr=Capture("", "", 0, 0),
        duration_s=0.1,
        user_s=0.5,
        programs=2,
    )
    return ExecOutcome("run-1", Path("/d/run-1"), Outcome(**given | more), result, Path("/d/run-1/patch.diff"))


def test_json_of_a_command() -> None:
    text = json.dumps(_to_json(outcome()))
    assert json.loads(text) == {
        "run": "run-1",
        "exit_code": 3,
        "status": "exited",
        "signal": 0,
        "cause": None,
        "limits_touched": [],
        "stdout": {"head": "hi?", "tail": "", "total_bytes": 3},
        "stderr": {"head": "", "tail": "", "total_bytes": 0},
        "error": None,
        "duration_s": 1.235,
        "resources": {
            "command": CallResources(user_s=0.5, programs=2).model_dump(),
            "run": RunResources(wall_s=1.5).model_dump(),
        },
        "box": {
            "image": "img",
            "image_id": "sha256:1",
            "runtime": "runc",
            "capabilities": [],
            "mode": "overlay",
            "mode_reason": None,
            "masked": [],
            "warnings": [],
            "lacks": [],
            "start_s": 0.0,
        },
        "activity": {
            "processes_started": 0,
            "connections_tried": 0,
            "only_counted": 0,
            "suspicious": [],
            "processes": [],
            "connections": [],
        },
        "network": None,
        "changes": json.loads(outcome().outcome.patch.model_dump_json()),  # type: ignore[union-attr]
        "patch": "/d/run-1/patch.diff",
        "layer": None,
        "run_dir": "/d/run-1",
    }


@pytest.mark.parametrize(
    ("error", "code"), [(BoxLost("gone"), 125), (ConfigError("no"), 2), (CorralError("a fault", code="internal"), 125)]
)
def test_an_error_has_a_code_of_its_own(error: CorralError, code: int) -> None:
    done = outcome(error=error)
    assert done.exit_code == code
    told = _to_json(done)
    assert (told["exit_code"], told["error"]) == (
        code,
        {"code": error.code, "message": error.message, "hint": error.hint},
    )
