"""Native tool calls put together from the pieces of a stream, or from a whole message.

Servers number, name and order the pieces of a call in many ways. A piece goes where its id says, then its index, then
to the call opened last; one that belongs nowhere makes the turn an error, because a call with a hole must not run.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.errors import ModelError
from corral.llm.parsing.arguments import parse_arguments
from corral.schema.text import clean
from corral.schema.tools import ToolCall

MAX_CALLS = 128
_MAX_ID = 64
_MAX_NAME = 256


@dataclass
class _Open:
    """A call of which more pieces may come."""

    id: str
    index: int | None
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    whole: object = None  # arguments that came as an object instead of text

    @property
    def arguments(self) -> object:
        return self.whole if self.whole is not None else "".join(self.pieces)

    @property
    def complete(self) -> bool:
        """Whether the arguments are whole JSON, so that a further piece cannot belong to them."""
        if self.whole is not None:
            return True
        try:
            json.loads("".join(self.pieces))
        except (ValueError, RecursionError):
            return False
        return True


@dataclass(frozen=True)
class _Piece:
    id: str
    index: int | None
    name: str
    arguments: object

    @property
    def empty(self) -> bool:
        return not (self.id or self.name) and self.arguments in ("", None)

    @property
    def blank(self) -> bool:
        """Nothing but white space: it may stand inside a string, and means nothing anywhere else."""
        return not (self.id or self.name) and isinstance(self.arguments, str) and not self.arguments.strip()


class CallAssembler:
    """Takes `tool_calls` of deltas in the order they come; `finish` gives the calls in the order they were opened."""

    def __init__(self) -> None:
        self._calls: list[_Open] = []

    def feed(self, delta: object) -> None:
        """One element of a delta's or a message's `tool_calls`. Raises ModelError for a piece that belongs nowhere."""
        piece = _read_piece(delta)
        if piece.empty:
            return
        call = self._route(piece)
        if call is None:
            if piece.blank:
                return
            raise ModelError(
                "the model's stream has a piece of a tool call that belongs to no call",
                hint="the endpoint's streaming of tool calls is faulty; another server version may help",
                code="bad_response",
            )
        if piece.index is not None:
            call.index = piece.index
        call.name = call.name or piece.name
        if isinstance(piece.arguments, str):
            call.pieces.append(piece.arguments)
        elif piece.arguments is not None:
            call.whole = piece.arguments

    def finish(self, used_ids: Iterable[str] = (), *, cut_off: bool = False) -> tuple[ToolCall, ...]:
        """The calls. Ids that are empty, doubled, unusable or in `used_ids` are replaced by new ones."""
        taken = set(used_ids)
        calls = []
        for call in self._calls:
            if not call.name and not call.pieces and call.whole is None:
                continue  # an id and nothing else, ever
            calls.append(_close(call, taken, cut_off))
        return tuple(calls)

    def _route(self, piece: _Piece) -> _Open | None:
        if piece.id:
            return self._route_by_id(piece)
        at_index = self._find_index(piece.index)
        if piece.name:
            # A name opens a call, unless it only repeats the head of one that still waits for arguments.
            if at_index and at_index.name in ("", piece.name) and not at_index.complete:
                return at_index
            return self._open(piece)
        if at_index is not None:
            return at_index
        last = self._calls[-1] if self._calls else None
        if piece.index is None or last is None or not last.complete:
            return last
        return None

    def _route_by_id(self, piece: _Piece) -> _Open:
        for call in reversed(self._calls):
            if call.id == piece.id:
                return call
        at_index = self._find_index(piece.index)
        # Some servers draw a new id for each piece, or send the id after the head.
        if at_index is not None and not piece.name:
            at_index.id = at_index.id or piece.id
            return at_index
        return self._open(piece)

    def _find_index(self, index: int | None) -> _Open | None:
        if index is None:
            return None
        return next((call for call in reversed(self._calls) if call.index == index), None)

    def _open(self, piece: _Piece) -> _Open:
        if len(self._calls) >= MAX_CALLS:
            raise ModelError(f"the model proposed more than {MAX_CALLS} calls in one answer", code="bad_response")
        call = _Open(id=piece.id, index=piece.index, name=piece.name)
        self._calls.append(call)
        return call


def parse_message_calls(
    tool_calls: object, used_ids: Iterable[str] = (), *, cut_off: bool = False
) -> tuple[ToolCall, ...]:
    """The calls of a whole message: each element is one call, whatever its id."""
    taken = set(used_ids)
    elements = tool_calls if isinstance(tool_calls, list) else []
    if len(elements) > MAX_CALLS:
        raise ModelError(f"the model proposed more than {MAX_CALLS} calls in one answer", code="bad_response")
    calls = []
    for element in elements:
        piece = _read_piece(element)
        call = _Open(id=piece.id, index=None, name=piece.name)
        if isinstance(piece.arguments, str):
            call.pieces.append(piece.arguments)
        else:
            call.whole = piece.arguments
        calls.append(_close(call, taken, cut_off))
    return tuple(calls)


def new_call_id() -> str:
    return f"call_{secrets.token_hex(8)}"


def _close(call: _Open, taken: set[str], cut_off: bool) -> ToolCall:
    call_id = clean(call.id)
    if not call_id or call_id in taken or len(call_id) > _MAX_ID or not call_id.isprintable():
        call_id = new_call_id()
    taken.add(call_id)
    name = clean(call.name)[:_MAX_NAME]
    if not name:
        return ToolCall(id=call_id, name="", problem="malformed_tool_call: the call names no tool")
    arguments, problem = parse_arguments(call.arguments)
    if problem is not None and cut_off:
        problem = "invalid_arguments: the answer was cut off at its length limit inside this call; send less at once"
    return ToolCall(id=call_id, name=name, arguments=arguments, problem=problem)


def _read_piece(element: object) -> _Piece:
    data = element if isinstance(element, Mapping) else {}
    function = data.get("function")
    function = function if isinstance(function, Mapping) else {}
    index = data.get("index")
    return _Piece(
        id=_text(data.get("id")),
        index=index if isinstance(index, int) else None,
        name=_text(function.get("name")),
        arguments=function.get("arguments"),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
