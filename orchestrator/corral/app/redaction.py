"""What one run masks by value: every secret that its user has named, or whose name says so."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from corral.config import Settings
from corral.redact import MIN_VALUE, Redactor

if TYPE_CHECKING:
    from corral.sandbox.egress import Secret

_SAYS_SECRET = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY|_(?:PAT|PW|DSN)\b", re.IGNORECASE
)
_RANDOM_FROM = 12
"""From this length on a value of corral's own environment with letters and digits is more than a word or a number."""


def build_redactor(
    settings: Settings,
    *,
    secrets: Iterable[Secret] = (),
    env: Mapping[str, str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Redactor:
    """`secrets` are those loaded for the run, `env` the variables its user gives to commands."""
    values = [(secret.name, secret.value) for secret in secrets]
    if settings.secrets:
        from corral.app.secret import peek_secrets  # late: start-up time

        values += peek_secrets(settings, environ)
    if key := environ.get(settings.model.api_key_env):
        values.append((settings.model.api_key_env, key))
    values += [(name, value) for name, value in (env or {}).items() if _SAYS_SECRET.search(name)]
    # The box has none of these. But whoever runs corral may print or paste one.
    values += [(name, value) for name, value in environ.items() if _SAYS_SECRET.search(name) and _is_random(value)]
    named: dict[str, str] = {}
    for name, value in values:
        if len(value) >= MIN_VALUE:
            named.setdefault(value, name)
    return Redactor(
        ((name, value) for value, name in named.items()), keys=settings.redact.keys, numbers=settings.redact.personal
    )


def _is_random(value: str) -> bool:
    if len(value) < _RANDOM_FROM or value.startswith("/"):
        return False
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))
