"""Notices a model that goes in circles: the same call without a change of state, and A-B-A-B.

The ladder is SPEC L2: the 3rd time a note (and a read-only call is answered from before), the 4th a refusal that asks
for another strategy, the 6th a last answer without tools, then `stuck`. A call is the same when its tool, its
normalised arguments and its result are; a successful file write changes the state and starts the count anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from corral.schema.tools import SideEffect, ToolCall, ToolResult

# What changes from run to run of the same failing command: numbers, addresses, temporary names, durations.
_VOLATILE = re.compile(r"0x[0-9a-fA-F]+|/tmp/[^\s:'\"]+|\d+")
_COMMENT = re.compile(r"(?:^|\s)#[^\n]*")
_SPACE = re.compile(r"\s+")
_WINDOW = 12
_FILE_TOOLS = frozenset({"write_file", "edit_file", "apply_patch", "move_file", "delete_file"})


class Rung(IntEnum):
    """How far up the ladder a proposed call is."""

    FINE = 0
    NOTE = 3
    REFUSE = 4
    LAST_ANSWER = 6
    STUCK = 7


def signature(call: ToolCall) -> str:
    """The call with what does not matter removed: key order, white space, comments of a command."""
    arguments = dict(call.arguments)
    command = arguments.get("command")
    if isinstance(command, str):
        arguments["command"] = _SPACE.sub(" ", _COMMENT.sub("", command)).strip()
    return json.dumps([call.name, arguments], sort_keys=True, default=str)


def result_digest(result: ToolResult) -> str:
    """A result with its volatile parts removed, so that the same failure is the same."""
    text = _VOLATILE.sub("#", result.output)
    return hashlib.sha256(f"{result.status}\n{text}".encode("utf-8", "replace")).hexdigest()


@dataclass
class Repetition:
    """The memory of recent calls. Ask `rung()` before a call runs, tell `note()` what came of it."""

    _results: dict[str, str] = field(default_factory=dict)  # signature -> digest of its last result
    _counts: dict[str, int] = field(default_factory=dict)  # signature -> times with that same result
    _recent: deque[str] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def rung(self, call: ToolCall) -> Rung:
        """Where on the ladder this call would be, were it run now."""
        times = max(self._counts.get(signature(call), 0), self._cycles(signature(call))) + 1
        return max((rung for rung in Rung if rung <= times), default=Rung.FINE)

    def note(self, call: ToolCall, result: ToolResult, side_effect: SideEffect) -> None:
        """Count a call that ran or was refused by the ladder."""
        key, digest = signature(call), result_digest(result)
        if call.name in _FILE_TOOLS and side_effect is SideEffect.WORKSPACE_WRITE and result.success:
            self._results.clear()
            self._counts.clear()
            self._recent.clear()
            self._results[key], self._counts[key] = digest, 1
            self._recent.append(key)
            return
        same = self._results.get(key) == digest
        self._counts[key] = self._counts.get(key, 0) + 1 if same else 1
        self._results[key] = digest
        self._recent.append(key)

    def note_refused(self, call: ToolCall) -> None:
        """Count a call the ladder did not let run: it stands where its last result stood."""
        key = signature(call)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._recent.append(key)

    def _cycles(self, key: str) -> int:
        """How often the last calls went round with unchanged results: A-B-A-B counts two, with key A next."""
        calls = [*self._recent, key]
        for period in (2, 3):
            if len(set(calls[-period:])) != period:
                continue
            rounds = 1
            while calls[-period * (rounds + 1) : -period * rounds] == calls[-period:]:
                rounds += 1
            if rounds >= 2 and all(self._counts.get(one, 0) >= rounds - 1 for one in set(calls[-period:])):
                return rounds
        return 0
