"""The contract of a model: one request, one reply. Adapters, the scripted and the replaying model all hold to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from corral.schema.messages import ModelReply, ModelRequest

OnText = Callable[[str], None]
"""Receives the answer's text in pieces as it arrives: raw words of the model, to be made visible before showing."""


class ModelClient(Protocol):
    """A model that can be asked. Not tied to one run; safe to ask again after a failure."""

    @property
    def name(self) -> str:
        """The model's name, for people and the record."""
        ...

    @property
    def endpoint(self) -> str:
        """Host and port that answer, or "" for a model that needs none. Never holds a key."""
        ...

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        """Ask once and return the whole answer.

        The reply has text or calls, or both. A call that could not be read is in it with its `problem` set; call ids
        are never empty and never used twice by one client. Raises ModelError: `code` says the cause, `transient`
        whether the same request may succeed later, `retry_after_s` when, `tokens` and `cost_usd` what it used up all
        the same. Cancelling closes the connection.
        """
        ...

    async def close(self) -> None:
        """Let connections go. Idempotent."""
        ...
