"""Settings: read whole, or refused with file, line, field and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.config import LimitSettings, ModelSettings, Settings, config_path, find_line, load_settings, parse_size
from corral.errors import ConfigError
from corral.sandbox.spec import GIB, MIB, Limits, WorkspaceMode


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_missing_user_file_gives_the_defaults() -> None:
    assert load_settings(environ={}) == Settings()
    assert not config_path({}).exists()


def test_every_kind_of_setting_is_read(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        image = "mine:1"
        mode = "copy"
        runtime = "runsc"
        mask = ["*.key", "!public.key"]
        data_dir = "/srv/corral"
        preset = "never"
        limits.memory = "2 GiB"
        limits.cpus = 1
        timeouts = { shell_s = 600 }
        [model]
        name = "small"
        """,
    )
    assert load_settings(file, environ={}) == Settings(
        image="mine:1",
        mode=WorkspaceMode.COPY,
        runtime="runsc",
        mask=("*.key", "!public.key"),
        data_dir=Path("/srv/corral"),
        preset="never",
        limits=LimitSettings(memory=2 * GIB, cpus=1),
        timeouts={"shell_s": 600},  # type: ignore[arg-type]
        model=ModelSettings(name="small"),
    )


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, '[model]\nname = "small"\n')
    environ = {"CORRAL_CONFIG": str(file), "CORRAL_MODEL": "large", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    assert load_settings(environ=environ).model == ModelSettings(name="large", base_url="http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode = 'overlai'", "{file}:1: mode: 'overlai': input should be 'auto', 'overlay' or 'copy'"),
        ("\n[limits]\n\npids = 3", "{file}:4: limits.pids: 3: input should be greater than or equal to 16"),
        ("[limits]\nmemori = 1", "{file}:2: limits.memori: there is no such setting"),
        ("[limit]\nmemory = 1", "{file}:1: limit: there is no such setting"),
        ("image = \n", "{file}:1: not TOML: Invalid value"),
        ("a = 1\nb = [", "{file}:2: not TOML: "),
        ("data_dir = 'runs'", "{file}:1: data_dir: 'runs' is not an absolute path"),
        ("model = 3", "{file}:1: model: 3: input should be a valid dictionary"),
        ("limits = {memory = true}", "{file}:1: limits.memory: True: input should be a valid integer"),
        ("[limits]\ntmp = '4 apples'", "{file}:2: limits.tmp: '4 apples': a size is a number of bytes or a text"),
        ('"\\u001b[31m" = 1', "{file}"),
    ],
)
def test_a_mistake_names_file_line_and_field(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(file, environ={})
    assert caught.value.message.startswith(message.format(file=file))
    assert caught.value.message.isprintable()
    assert caught.value.exit_code == 2


def test_an_unknown_name_is_answered_with_the_names_allowed_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(write(tmp_path, "[model]\nnaem = 'x'"), environ={})
    assert caught.value.hint == "allowed here: name, base_url, api_key_env"


def test_further_mistakes_are_counted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\(and 2 more\)$"):
        load_settings(write(tmp_path, "a = 1\nb = 2\nc = 3\n"), environ={})


def test_a_wrong_variable_is_named_and_not_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^OPENAI_BASE_URL: 'nonsense': "):
        load_settings(write(tmp_path, ""), environ={"OPENAI_BASE_URL": "nonsense"})


def test_a_named_file_must_exist_and_be_readable_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no settings file"):
        load_settings(environ={"CORRAL_CONFIG": str(tmp_path / "none.toml")})
    with pytest.raises(ConfigError, match="cannot read the settings file"):
        load_settings(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"a = 1\n# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.toml:2: this is not UTF-8"):
        load_settings(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("1.5GiB", 3 * GIB // 2), ("512 mib", 512 * MIB), ("7 B", 7), ("1TiB", 1 << 40)]
)
def test_sizes_are_read_in_binary_units(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_default_limits_are_the_documented_ones_on_a_large_host() -> None:
    assert LimitSettings().to_limits(host_memory=64 * GIB) == Limits()


def test_a_small_host_gives_half_its_memory_and_smaller_memory_file_systems() -> None:
    limits = LimitSettings().to_limits(host_memory=1 * GIB)
    assert (limits.memory_bytes, limits.tmp_bytes, limits.home_bytes, limits.shm_bytes) == (
        512 * MIB,
        64 * MIB,
        32 * MIB,
        16 * MIB,
    )


def test_memory_file_systems_over_half_of_the_memory_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"over half of limits\.memory"):
        LimitSettings(memory=512 * MIB, tmp=300 * MIB).to_limits()


def test_find_line_prefers_the_setting_itself_over_its_table() -> None:
    text = '[model]\nname = "x"\n\n[limits]\n"pids" = 3\n'
    assert [find_line(text, where) for where in (("limits", "pids"), ("limits", "tmp"), ("mode",))] == [5, 4, None]
