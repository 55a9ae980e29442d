"""Why a run ended, what it had used by then, and what the process exits with. Names and numbers are SPEC's."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from corral.schema.events import Tokens


class StopReason(StrEnum):
    FINISHED = "finished"
    FINISHED_INCOMPLETE = "finished_incomplete"
    NOT_VERIFIED = "not_verified"
    STEP_LIMIT = "step_limit"
    TOKEN_LIMIT = "token_limit"  # noqa: S105 - a budget, not a secret
    COST_LIMIT = "cost_limit"
    TIME_LIMIT = "time_limit"
    STUCK = "stuck"
    FAILURES = "failures"
    PARSE_FAILURES = "parse_failures"
    APPROVAL_DENIED = "approval_denied"
    CANCELLED = "cancelled"
    MODEL_UNAVAILABLE = "model_unavailable"
    BOX_LOST = "box_lost"
    ERROR = "error"


@dataclass(frozen=True)
class Spent:
    """What a run has used, however it ended."""

    steps: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    cost_usd: float | None = None  # None: not known, or no model was asked


EXEC_FAILED = 125
"""What `exec` exits with when corral or the engine failed."""

EXIT_CODES: dict[StopReason, int] = {
    StopReason.FINISHED: 0,
    StopReason.FINISHED_INCOMPLETE: 0,
    StopReason.NOT_VERIFIED: 13,
    StopReason.STEP_LIMIT: 10,
    StopReason.TOKEN_LIMIT: 10,
    StopReason.COST_LIMIT: 10,
    StopReason.TIME_LIMIT: 10,
    StopReason.STUCK: 11,
    StopReason.FAILURES: 11,
    StopReason.PARSE_FAILURES: 11,
    StopReason.APPROVAL_DENIED: 12,
    StopReason.CANCELLED: 130,
    StopReason.MODEL_UNAVAILABLE: 3,
    StopReason.BOX_LOST: 3,
    StopReason.ERROR: 3,
}


def is_complete(reason: StopReason) -> bool:
    """Whether a patch made at this stop is what the agent meant to hand over; any other is marked incomplete."""
    return reason is StopReason.FINISHED
