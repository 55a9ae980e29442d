"""An event without what must not be seen. Digests stay: they are of the whole, and prove what was masked."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from corral.redact import Redactor
from corral.schema.events import Payload

P = TypeVar("P", bound=Payload)

_DIGEST = re.compile("[0-9a-f]{64}")
_DIGEST_FIELDS = ("sha256", "policy", "patch", "base", "digest")


def mask_payload(redactor: Redactor, payload: P) -> P:
    """The same kind of event with every text masked, the names in its free objects too."""
    fields = payload.model_dump(mode="json")
    return type(payload).model_validate({name: _mask(redactor, name, value) for name, value in fields.items()})


def _mask(redactor: Redactor, name: str, value: Any) -> Any:
    if isinstance(value, str):
        if name.endswith(_DIGEST_FIELDS) and _DIGEST.fullmatch(value):
            return value
        return redactor.text(value)
    if isinstance(value, dict):
        return {redactor.text(key): _mask(redactor, key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_mask(redactor, name, item) for item in value]
    return value
