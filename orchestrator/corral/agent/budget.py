"""What a run may spend, what it has spent, and which limit stops it: checked before each model call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from corral.agent.stop import Spent, StopReason
from corral.errors import ModelError
from corral.schema.events import Tokens
from corral.schema.messages import ModelReply


@dataclass(frozen=True)
class Limits:
    """Budgets of one run; None means no limit. Tokens are input plus output, cost is US dollars."""

    steps: int = 30
    tokens: int | None = None
    cost_usd: float | None = None
    wall_s: float | None = None
    failures: int = 5  # consecutive failed tool calls


@dataclass
class Budget:
    """The account of one run: every model call is charged to it, answered or not."""

    limits: Limits
    clock: Callable[[], float] = time.monotonic
    started_at: float = field(init=False)
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0  # calls of a model whose price nobody knows: a cost limit cannot see them
    failures: int = 0

    def __post_init__(self) -> None:
        self.started_at = self.clock()

    def charge(self, reply: ModelReply) -> None:
        """Count one answered model call."""
        self._charge(reply.usage.input_tokens, reply.usage.output_tokens, reply.cost_usd)

    def charge_failure(self, error: ModelError) -> None:
        """Count one model call that failed: providers bill useless answers too."""
        if any(error.tokens) or error.cost_usd:
            self._charge(*error.tokens, error.cost_usd)
        else:
            self.steps += 1

    def _charge(self, input_tokens: int, output_tokens: int, cost_usd: float | None) -> None:
        self.steps += 1
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        if cost_usd is None:
            self.unpriced_calls += 1
        else:
            self.cost_usd += cost_usd

    def note_call(self, *, failed: bool) -> None:
        """Count one tool call: failures in a row, reset by any success."""
        self.failures = self.failures + 1 if failed else 0

    def exhausted(self) -> StopReason | None:
        """The first limit that is used up, or None. Asked before a call, so no limit is passed by more than one."""
        limits = self.limits
        if self.failures >= limits.failures:
            return StopReason.FAILURES
        if limits.wall_s is not None and self.elapsed_s >= limits.wall_s:
            return StopReason.TIME_LIMIT
        if limits.cost_usd is not None and self.cost_usd >= limits.cost_usd:
            return StopReason.COST_LIMIT
        if limits.tokens is not None and self.tokens >= limits.tokens:
            return StopReason.TOKEN_LIMIT
        if self.steps >= limits.steps:
            return StopReason.STEP_LIMIT
        return None

    def spent(self) -> Spent:
        """The account, for the run's end. The cost is None when a model without a known price was asked."""
        return Spent(
            steps=self.steps,
            tokens=Tokens(input=self.input_tokens, output=self.output_tokens),
            cost_usd=None if self.unpriced_calls else self.cost_usd,
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.started_at

    def line(self) -> str:
        """What the model is told before each step: where it is and what is left."""
        parts = [f"step {self.steps + 1} of {self.limits.steps}"]
        if self.limits.tokens is not None:
            parts.append(f"{max(0, self.limits.tokens - self.tokens)} tokens left")
        if self.limits.cost_usd is not None:
            parts.append(f"${max(0.0, self.limits.cost_usd - self.cost_usd):.2f} left")
        if self.limits.wall_s is not None:
            parts.append(f"{max(0, int(self.limits.wall_s - self.elapsed_s))} s left")
        return " · ".join(parts)
