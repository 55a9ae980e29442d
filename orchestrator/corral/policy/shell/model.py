"""The values of this room: a word, the input of a command, and what a whole command line was found to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Word(NamedTuple):
    """One word of a command, quoting undone. `text` is None where only a run would tell it."""

    text: str | None
    many: bool = False  # may become no word or several: an unquoted expansion, a pattern, braces


UNKNOWN_WORD = Word(None)
UNKNOWN_WORDS = Word(None, many=True)


class Stdin(NamedTuple):
    """What a command reads on its standard input, as far as it matters to a program that takes code there."""

    given: bool = False  # there is one, and it is no terminal
    text: str | None = None  # all of it, where the line itself says it
    file: str | None = None


NO_STDIN = Stdin()
SOME_STDIN = Stdin(given=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program (or builtin, or function) that would be started."""

    name: str  # as written, quoting undone: `rm`, `/bin/rm`, `./run.sh`
    arguments: tuple[str | None, ...] = ()  # None: known at run time only, and perhaps several
    within: tuple[str, ...] = ()  # what starts it, outermost first: `sudo`, `xargs`, `bash`; () the shell itself


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """What one command line would do. All of it is claimed only while `dynamic` and `has_error` are false."""

    programs: tuple[Program, ...] = ()
    writes: tuple[str, ...] = ()  # files it says it writes or removes, as written
    hosts: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()  # files that a shell or interpreter would run
    code: tuple[str, ...] = ()  # programs that get code in a language that is not read here: `python3` for `python3 -c`
    variables: tuple[str, ...] = ()  # assigned, and able to change what a program is or does: `PATH`, `GIT_DIR`
    unknown: tuple[str, ...] = ()  # why more may run than is said here
    more_writes: bool = False  # files are written or removed whose names are known at run time only
    more_hosts: bool = False  # hosts are reached whose names are known at run time only
    moves: bool = False  # changes its directory on the way: relative names may be anywhere
    has_error: bool = False  # not understood as the shell would

    @property
    def dynamic(self) -> bool:
        """Something runs that only a run would tell."""
        return bool(self.unknown)
