"""Named secrets, from where the user's settings say they are, to what the tunnel puts into requests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress

from corral.config import SecretSettings, Settings
from corral.errors import ConfigError
from corral.sandbox.egress import MIN_SECRET, Secret, make_placeholder
from corral.schema.target import BadTarget, parse_host

_COMMAND_S = 30.0
_MAX_BYTES = 16 << 10


def load_secrets(settings: Settings, names: Iterable[str], environ: Mapping[str, str] = os.environ) -> list[Secret]:
    """The secrets of these names, read now. Raises ConfigError; no message ever holds a value."""
    return [_load(name, settings, environ) for name in dict.fromkeys(names)]


def peek_secrets(settings: Settings, environ: Mapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """Names and values of all that can be read without running anything, for what must be masked."""
    found = []
    for name, source in settings.secrets.items():
        if source.command is None:
            with suppress(ConfigError):
                found.append((name, _read(name, source, environ).strip()))
    return found


def name_variables(settings: Settings, secrets: Iterable[Secret]) -> dict[str, str]:
    """The variables that commands in the box find: each with its placeholder."""
    return {settings.secrets[one.name].variable or _usual_variable(one.name): one.placeholder for one in secrets}


def _usual_variable(name: str) -> str:
    return name.upper().replace("-", "_")


def _load(name: str, settings: Settings, environ: Mapping[str, str]) -> Secret:
    source = settings.secrets.get(name)
    if source is None:
        known = ", ".join(settings.secrets) or "none is set"
        raise ConfigError(f"there is no secret {name!r}", hint=f"[secrets.{name}] in the settings; known: {known}")
    value = _read(name, source, environ).strip()
    if len(value) < MIN_SECRET or not value.isascii() or not value.isprintable():
        raise ConfigError(
            f"the secret {name!r} cannot be used in a header",
            hint=f"at least {MIN_SECRET} printable ASCII characters on one line",
        )
    return Secret(
        name=name,
        hosts=frozenset(_parse_host(name, host) for host in source.hosts),
        header=source.header.lower(),
        value=value,
        placeholder=make_placeholder(len(value)),
    )


def _parse_host(name: str, text: str) -> str:
    try:
        return parse_host(text)
    except BadTarget:
        raise ConfigError(
            f"the secret {name!r} is for {text!r}, which is no host",
            hint="a name such as api.example.org: no port, no *",
        ) from None


def _read(name: str, source: SecretSettings, environ: Mapping[str, str]) -> str:
    try:
        if source.env is not None:
            return environ[source.env]
        if source.file is not None:
            with source.file.open("rb") as file:
                return file.read(_MAX_BYTES).decode("utf-8")
        assert source.command is not None
        done = subprocess.run(  # the user's own settings say what runs
            list(source.command), capture_output=True, check=True, stdin=subprocess.DEVNULL, timeout=_COMMAND_S
        )
        return done.stdout[:_MAX_BYTES].decode("utf-8")
    except KeyError:
        problem = f"the variable {source.env} is not set"
    except subprocess.SubprocessError as error:
        problem = f"its command failed: {type(error).__name__}"
    except UnicodeDecodeError:
        problem = "it is no text"
    except OSError as error:
        problem = error.strerror or type(error).__name__
    raise ConfigError(f"the secret {name!r} cannot be read: {problem}", hint=f"see [secrets.{name}] in the settings")
