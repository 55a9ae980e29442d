"""Notices a model that goes in circles: the same call without a change of state, and A-B-A-B.

The ladder is SPEC L2: the 3rd time a note (and a read-only call is answered from before), the 4th a refusal that asks
for another strategy, the 6th a last answer without tools. A call is the same when its tool and its normalised arguments
are; it counts while its result stays the same too. What changes the state starts the count anew, except where the last
calls with their results went round and round: two edits that undo each other change the state and lead nowhere.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from corral.schema.text import digest
from corral.schema.tools import SideEffect, ToolCall, ToolKind, ToolResult, ToolSpec
from corral.schema.volatile import strip_volatile

_QUOTED = r"""'[^']*'|"(?:\\.|[^"\\])*"|\\."""
_COMMENT = re.compile(rf"({_QUOTED})|(?:^|(?<=[\s;|&(]))#[^\n]*", re.DOTALL)
_SPACE = re.compile(rf"({_QUOTED})|\s+", re.DOTALL)
_PERIODS = (2, 3)
_WINDOW = 24  # six rounds of A-B-C, and more than six of A-B
_FILE_CHANGES = (ToolKind.WRITE, ToolKind.DELETE)


class Rung(IntEnum):
    """How far up the ladder a proposed call is: the number of the time it would be."""

    FINE = 0
    NOTE = 3
    REFUSE = 4
    LAST_ANSWER = 6


def signature(call: ToolCall) -> str:
    """The call with what does not matter removed: key order, white space and comments of a command."""
    arguments = dict(call.arguments)
    if isinstance(command := arguments.get("command"), str):
        arguments["command"] = squeeze(command)
    return json.dumps([call.name, arguments], sort_keys=True, default=str)


def squeeze(command: str) -> str:
    """A command line without comments and with single spaces; what is quoted stays as it is."""
    text = _COMMENT.sub(lambda match: match[1] or "", command)
    return _SPACE.sub(lambda match: match[1] or ("\n" if "\n" in match[0] else " "), text).strip()


def result_digest(result: ToolResult) -> str:
    """A result without its volatile parts, so that the same failure is the same."""
    error = f"{result.error.code}: {result.error.message}" if result.error else ""
    text = strip_volatile(f"{error}\n{result.output}")
    return digest(f"{result.status.value}\n{result.data.get('exit_code')}\n{text}")


@dataclass
class Repetition:
    """The memory of recent calls. Ask `rung()` before a call runs, tell `note()` what came of it."""

    _results: dict[str, str] = field(default_factory=dict)  # signature -> digest of its last result
    _counts: dict[str, int] = field(default_factory=dict)  # signature -> times with that same result
    _seen: set[str] = field(default_factory=set)  # every signature of the run
    _recent: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def rung(self, call: ToolCall) -> Rung:
        """Where on the ladder this call would be, were it run now."""
        times = self.times(call) + 1
        return max(rung for rung in Rung if rung <= times)

    def times(self, call: ToolCall) -> int:
        """How often it has been made, in effect, without getting anywhere."""
        key = signature(call)
        return max(self._counts.get(key, 0), self._rounds(key))

    def note(self, call: ToolCall, result: ToolResult, spec: ToolSpec | None) -> bool:
        """Count a call that was run, or refused by a later step than the ladder. Whether it was once too often."""
        key, outcome = signature(call), result_digest(result)
        again = self.rung(call) >= Rung.NOTE and self._last_outcome(key) == outcome
        if self._changes_state(key, result, spec):
            self._results.clear()
            self._counts.clear()
        same = self._results.get(key) == outcome
        self._counts[key] = self._counts.get(key, 0) + 1 if same else 1
        self._results[key] = outcome
        self._seen.add(key)
        self._recent.append((key, outcome))
        return again

    def note_refused(self, call: ToolCall) -> None:
        """Count a call the ladder did not let run: it stands where its last result stood."""
        key = signature(call)
        self._counts[key] = self.times(call) + 1
        self._recent.append((key, self._results.setdefault(key, self._last_outcome(key))))

    def _last_outcome(self, key: str) -> str:
        return next((outcome for one, outcome in reversed(self._recent) if one == key), "")

    def _changes_state(self, key: str, result: ToolResult, spec: ToolSpec | None) -> bool:
        """Whether the world is another after this call, as far as the host can know."""
        if spec is None or not result.success or spec.side_effect is SideEffect.READ_ONLY:
            return False
        # A file tool says what it changed. A command may have changed anything the first time it runs; the same
        # command again is what is being counted.
        return bool(result.artifacts) if spec.kind in _FILE_CHANGES else key not in self._seen

    def _rounds(self, key: str) -> int:
        """How often the last calls went round with the same results, where `key` would begin another round."""
        calls = list(self._recent)
        for period in _PERIODS:
            last = calls[-period:]
            if len(last) < period or last[0][0] != key or len({one for one, _ in last}) != period:
                continue
            rounds = 1
            while calls[-period * (rounds + 1) : -period * rounds] == last:
                rounds += 1
            if rounds >= 2:
                return rounds
        return 0
