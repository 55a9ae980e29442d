"""Every setting is documented, with the default the code has."""

from __future__ import annotations

import re
import tomllib
import typing
from pathlib import Path

from pydantic import BaseModel
from tests.docs.settings_reference import TARGET, render_reference

from corral.config import Settings, load_settings


def names(model: type[BaseModel], prefix: str = "") -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if typing.get_origin(kind) is dict:
            found += names(typing.get_args(kind)[1], f"{prefix}{name}.NAME.")
            continue
        nested = isinstance(kind, type) and issubclass(kind, BaseModel)
        found += names(kind, f"{prefix}{name}.") if nested else [f"{prefix}{name}"]
    return found


def test_settings_reference_is_what_the_models_say() -> None:
    assert TARGET.read_text() == render_reference(), "run: python -m tests.docs.settings_reference"


def test_every_setting_has_a_row_with_a_text() -> None:
    rows = [line.split("|") for line in TARGET.read_text().splitlines() if line.startswith("| `")]
    assert [row[1].strip().strip("`") for row in rows] == names(Settings)
    assert [row[1] for row in rows if not row[-2].strip() or not row[2].strip()] == []


def test_the_example_is_a_file_corral_takes(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.*?)```", TARGET.read_text(), re.DOTALL)
    assert found
    file = tmp_path / "config.toml"
    file.write_text(found[1])
    assert load_settings(file, environ={}).model_dump(exclude_defaults=True, mode="json") == {
        "mask": [".env", "*.pem"],
        "limits": {"memory": 2 << 30, "pids": 256},
        "model": tomllib.loads(found[1])["model"],
    }
