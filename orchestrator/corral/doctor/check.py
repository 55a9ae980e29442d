"""One thing the doctor looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"  # corral works, with less
    FAIL = "fail"  # corral does not work


@dataclass(frozen=True)
class Check:
    """`detail` says what is, `hint` what to do about it. Both are one line."""

    name: str
    status: Status
    detail: str
    hint: str | None = None


def worst(checks: tuple[Check, ...]) -> Status:
    """The status of the whole."""
    found = {check.status for check in checks}
    return next((status for status in (Status.FAIL, Status.WARN) if status in found), Status.OK)
