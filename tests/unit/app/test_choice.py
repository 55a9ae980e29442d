"""Names that a user wrote: what they mean, and what is said when they mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.app import build_timeouts, choose_model, choose_preset, parse_mode
from corral.app.choice import load_policy
from corral.config import Settings, TimeoutSettings
from corral.errors import ConfigError
from corral.llm import ReplayModel, ScriptedModel
from corral.record import RecordLog
from corral.schema.events import ModelAnswered
from corral.schema.policy import Mode, Preset
from corral.store.run_dir import RunDir

OWN = """
@id("keep")
@reason("mine")
forbid (principal, action == Action::"delete", resource);
"""


def test_a_preset_and_its_mode() -> None:
    assert choose_preset("never", plan=False) == (Preset.NEVER, Mode.BUILD)
    assert choose_preset("plan", plan=False) == choose_preset("auto", plan=True) == (Preset.PLAN, Mode.PLAN)
    with pytest.raises(ConfigError, match="there is no preset 'free'") as error:
        choose_preset("free", plan=False)
    assert error.value.hint == "one of: on-request, auto-edit, auto, never, yolo, plan"


def test_a_workspace_mode() -> None:
    assert parse_mode("copy").value == "copy"
    with pytest.raises(ConfigError, match="there is no workspace mode 'magic'") as error:
        parse_mode("magic")
    assert error.value.hint == "one of: auto, overlay, copy"


def test_time_limits_come_from_the_settings() -> None:
    limits = build_timeouts(Settings(timeouts=TimeoutSettings(shell_s=7, file_s=3, other_s=2)))
    assert (limits.shell_s, limits.file_s, limits.other_s) == (7, 3, 2)


def test_rules_of_ones_own_come_on_top(tmp_path: Path) -> None:
    file = tmp_path / "mine.cedar"
    file.write_text(OWN)
    engine = load_policy(Settings(policy=(file,)), Preset.YOLO)
    assert "mine/keep" in engine.rules and "builtin/outside" in engine.rules
    assert engine.version != load_policy(Settings(), Preset.YOLO).version


def test_a_typo_in_them_is_told_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.cedar"
    file.write_text(OWN.replace('"delete"', '"delte"'))
    with pytest.raises(ConfigError, match=r"mine\.cedar', line 4: .*delte"):
        load_policy(Settings(policy=(file,)), Preset.AUTO)
    with pytest.raises(ConfigError, match=r"none\.cedar"):
        load_policy(Settings(policy=(tmp_path / "none.cedar",)), Preset.AUTO)
    with pytest.raises(ConfigError, match="two policy layers are named 'auto'"):
        load_policy(Settings(policy=(tmp_path / "auto.cedar",)), Preset.AUTO)


def test_models_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    script = tmp_path / "s.json"
    script.write_text('{"replies": [{"text": "hi"}]}')
    assert isinstance(choose_model(Settings(), f"scripted:{script}"), ScriptedModel)
    with RunDir.create() as run_dir, RecordLog.open(run_dir.record) as record:
        with pytest.raises(ConfigError, match="no model answered in the recorded run"):
            choose_model(Settings(), f"replay:{run_dir.run_id}")
        record.append(ModelAnswered(step=1, request_id="r", model="m"))
        model = choose_model(Settings(), "replay:last")
        assert isinstance(model, ReplayModel) and model.name == "m"
    for name, words in ((None, "no model is configured"), ("replay:x", "there is no run 'x'"), ("gpt", "no key")):
        with pytest.raises(ConfigError, match=words):
            choose_model(Settings(), name)
