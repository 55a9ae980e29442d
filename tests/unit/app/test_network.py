"""A run's network before there is a run: lists, secrets, and every way they can be wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from corral.app.network import plan_network, read_rules
from corral.app.request import NetworkRequest
from corral.app.secret import load_secrets, name_variables
from corral.config import Settings
from corral.errors import ConfigError

VALUE = "s3cr3t-t0ken-value"


def with_secret(**source: Any) -> Settings:
    return Settings.model_validate({"secrets": {"api-key": {"hosts": ["API.test"], **source}}})


def test_flags_come_on_top_of_the_settings_and_a_profile_replaces_them() -> None:
    settings = Settings.model_validate({"network": {"profiles": ["go"], "allow": ["a.test:1"]}})
    plan = plan_network(settings, NetworkRequest(allow=("b.test:2",)), phase="agent", setup=("rust",))
    assert [str(rule) for rule in plan.rules][-2:] == ["a.test:1", "b.test:2"]
    assert (plan.profiles, plan.phase, len(plan.rules)) == (("go",), "agent", len(read_rules(["go"])) + 2)
    assert plan.setup_rules == read_rules(["rust"])
    assert plan_network(settings, NetworkRequest(profiles=("none",))).rules == ()


def test_a_secret_from_each_source(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{VALUE}\n")
    program = [sys.executable, "-c", f"print({VALUE!r})"]
    for source in ({"env": "TOKEN"}, {"file": str(file)}, {"command": program}):
        settings = with_secret(**source)
        (secret,) = load_secrets(settings, ["api-key", "api-key"], {"TOKEN": VALUE})
        assert (secret.name, secret.value, secret.hosts, secret.header) == (
            *("api-key", VALUE, frozenset({"api.test"}), "authorization"),
        )
        assert name_variables(settings, [secret]) == {"API_KEY": secret.placeholder}
    settings = with_secret(env="TOKEN", variable="Mine", header="X-Key")
    (secret,) = load_secrets(settings, ["api-key"], {"TOKEN": VALUE})
    assert (secret.header, name_variables(settings, [secret])) == ("x-key", {"Mine": secret.placeholder})


def test_the_hosts_of_a_secret_are_on_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", VALUE)
    plan = plan_network(with_secret(env="TOKEN"), NetworkRequest(secrets=("api-key",)))
    assert [str(rule) for rule in plan.rules] == ["api.test:443"]
    assert VALUE not in repr(plan)


@pytest.mark.parametrize(
    ("source", "environ", "problem"),
    [
        ({"env": "TOKEN"}, {}, "the variable TOKEN is not set"),
        ({"env": "TOKEN"}, {"TOKEN": "short"}, "cannot be used in a header"),
        ({"env": "TOKEN"}, {"TOKEN": f"{VALUE}\r\nX: y"}, "cannot be used in a header"),
        ({"env": "TOKEN"}, {"TOKEN": "schlüsselwort"}, "cannot be used in a header"),
        ({"file": "/nowhere/at/all"}, {}, "No such file or directory"),
        ({"command": [sys.executable, "-c", "raise SystemExit(3)"]}, {}, "its command failed: CalledProcessError"),
        ({"command": ["/nowhere/at/all"]}, {}, "No such file or directory"),
    ],
)
def test_a_secret_that_cannot_be_had(source: dict[str, Any], environ: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        load_secrets(with_secret(**source), ["api-key"], environ)
    assert VALUE not in f"{error.value} {error.value.hint}"


@pytest.mark.parametrize("host", ["a.test:443", "*.a.test", "https://a.test", "", "127.1"])
def test_a_secret_for_what_is_no_host(host: str) -> None:
    settings = Settings.model_validate({"secrets": {"api-key": {"hosts": [host], "env": "TOKEN"}}})
    with pytest.raises(ConfigError, match="which is no host"):
        load_secrets(settings, ["api-key"], {"TOKEN": VALUE})


def test_a_secret_that_is_not_known() -> None:
    with pytest.raises(ConfigError, match="there is no secret 'other'") as error:
        load_secrets(with_secret(env="TOKEN"), ["other"])
    assert error.value.hint == "[secrets.other] in the settings; known: api-key"


@pytest.mark.parametrize(
    "secret",
    [
        {"hosts": ["a.test"]},
        {"hosts": ["a.test"], "env": "A", "file": "/b"},
        {"env": "A"},
        {"env": "A", "hosts": []},
        {"env": "A", "hosts": ["a.test"], "header": "X: y"},
        {"env": "A B", "hosts": ["a.test"]},
        {"command": [], "hosts": ["a.test"]},
    ],
)
def test_settings_of_a_secret_that_are_none(secret: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"secrets": {"x": secret}})
