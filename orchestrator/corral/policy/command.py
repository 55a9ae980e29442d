"""A command line as facts for policy: what `shell` reads out of it, bounded and spelled as rules compare it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from corral.schema.policy import CommandFacts

# A person reads no more of one line, and the engine would take seconds over tens of thousands.
MAX_LISTED = 500


def parse_command(command: str) -> CommandFacts:
    """The facts of one command line."""
    # late: the parser library, which only a command line needs
    from corral.policy.shell import read_command_line
    from corral.policy.shell.safe import is_safe

    line = read_command_line(command)
    programs = dict.fromkeys(name for program in line.programs for name in _spell(program.name))
    writes = dict.fromkeys(place for name in line.writes for place in _climb(name))
    unknown = [*line.unknown, *(("it is not understood as the shell would",) if line.has_error else ())]
    if max(len(programs), len(writes), len(line.hosts), len(line.scripts)) > MAX_LISTED:
        # SECURITY: what is cut off the list could be what a rule forbids; test_more_than_is_listed_is_not_parsed
        unknown.append(f"more than {MAX_LISTED} programs, files or hosts")
    return CommandFacts(
        parsed=not unknown,
        programs=_cut(programs),
        safe=is_safe(line),
        dynamic=line.dynamic or len(unknown) > len(line.unknown) + line.has_error,
        has_error=line.has_error,
        writes=_cut(writes),
        more_writes=line.more_writes,
        hosts=_cut(line.hosts),
        more_hosts=line.more_hosts,
        scripts=_cut(line.scripts),
        code=_cut(line.code),
        variables=_cut(line.variables),
        unknown=tuple(unknown),
    )


def _spell(name: str) -> tuple[str, ...]:
    """As it stands there and, for a rule that forbids `rm`, without its directory."""
    base = name.rsplit("/", 1)[-1]
    return (name,) if base in (name, "") else (name, base)


def _climb(name: str) -> Iterable[str]:
    """The file and the directories above it: a rule names a place and means what is below, too."""
    path = posixpath.normpath(name)
    path = path[1:] if path.startswith("//") else path
    for _ in range(64):
        yield path
        path = posixpath.dirname(path)
        if path in ("", "/"):
            return


def _cut(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(items)[:MAX_LISTED]
