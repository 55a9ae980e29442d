"""What has been found so far, and what is still to be read: the shared notebook of the readers in this room."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from corral.policy.shell.model import NO_STDIN, CommandLine, Program, Stdin, Word

MAX_DEPTH = 12  # programs within programs, code within code
MAX_PENDING = 20_000  # commands found inside other commands, of one line
# Code inside code is read again: the sum of it, however deep, stays a small multiple of the largest line.
MAX_NESTED_BYTES = 192 * 1024


@dataclass(frozen=True, slots=True)
class Command:
    """One command before it is known what it does: `words` are all but the name."""

    name: str
    words: tuple[Word, ...]
    within: tuple[str, ...]
    stdin: Stdin

    @property
    def base(self) -> str:
        return self.name.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Code:
    """Shell code found as a value: `text` is read as a command line, or as text with expansions only."""

    text: str
    within: tuple[str, ...]
    stdin: Stdin
    expansions_only: bool = False


class Findings:
    """Collects; decides nothing but the bounds."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.writes: dict[str, None] = {}
        self.hosts: dict[str, None] = {}
        self.scripts: dict[str, None] = {}
        self.code: dict[str, None] = {}
        self.variables: dict[str, None] = {}
        self.unknown: dict[str, None] = {}
        self.moves = self.more_writes = self.more_hosts = False
        self.has_error = False
        self.pending: deque[Command | Code] = deque()
        self._nested = 0
        self._seen = 0

    def run(self, words: Iterable[Word], within: tuple[str, ...], stdin: Stdin = NO_STDIN) -> None:
        """Another command: the name and its arguments."""
        name, *rest = words
        if name.text is None or name.many:
            self.tell_unknown("the name of a program is known at run time only")
            return
        if name.text == "":
            return
        if self._has_room(within):
            self.pending.append(Command(name.text, tuple(rest), within, stdin))

    def read(
        self, text: str, within: tuple[str, ...], stdin: Stdin = NO_STDIN, *, expansions_only: bool = False
    ) -> None:
        """Code in the shell's language."""
        self._nested += len(text)
        if self._nested > MAX_NESTED_BYTES:
            self.tell_unknown("too much code inside code")
        elif self._has_room(within):
            self.pending.append(Code(text, within, stdin, expansions_only))

    def _has_room(self, within: tuple[str, ...]) -> bool:
        self._seen += 1
        if len(within) > MAX_DEPTH or self._seen > MAX_PENDING:
            self.tell_unknown("commands inside commands, too many or too deep")
            return False
        return True

    def tell_unknown(self, reason: str) -> None:
        self.unknown[reason] = None

    def write(self, word: Word) -> None:
        """A file that is written or removed."""
        if word.text is None:
            self.more_writes = True
        elif word.text not in ("", "-", "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"):
            self.writes[word.text] = None
            self.more_writes = self.more_writes or word.many

    def run_script(self, word: Word) -> None:
        """A file that is run as code."""
        if word.text is None or word.text.startswith(("/dev/", "/proc/")):
            self.tell_unknown("code is known at run time only")
        else:
            self.scripts[word.text] = None

    def close(self) -> CommandLine:
        return CommandLine(
            programs=tuple(self.programs),
            writes=tuple(self.writes),
            hosts=tuple(self.hosts),
            scripts=tuple(self.scripts),
            code=tuple(self.code),
            variables=tuple(self.variables),
            unknown=tuple(self.unknown),
            more_writes=self.more_writes,
            more_hosts=self.more_hosts,
            moves=self.moves,
            has_error=self.has_error,
        )
