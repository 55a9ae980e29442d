"""Reading a command line: what policy costs a `shell` call before it runs. CPU time, no box."""

from __future__ import annotations

import time
from collections.abc import Callable

import tree_sitter
import tree_sitter_bash

from benchmarks.run import Contender, Options, alternate, main
from benchmarks.table import Group, compare, state
from corral.policy.shell import MAX_BYTES, read_command_line

LINE = (
    'cd src && grep -rn "foo bar" . | head -5 > /tmp/out 2>&1; '
    'for f in *.py; do python3 -m py_compile "$f" || echo "bad $f"; done\n'
)
SIZE = 4096
# The slowest of those that tests/unit/policy/shell/test_bounds.py reads.
WORST = "=~ "
NOTE = """\
4 KB of usual commands, read until every program, file and host is known; beside it the parser library alone, which
gives a tree and nothing else. Below, the smallest command, the largest, and the slowest text of that size that is
known. CPU time of the process."""


async def measure(options: Options) -> Group:
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    text = LINE * (SIZE // len(LINE))
    large = LINE * (MAX_BYTES // len(LINE))
    worst = WORST * (MAX_BYTES // len(WORST))
    found = await alternate(
        options.rounds(200, 40),
        {
            "ours": _cpu(lambda: read_command_line(text)),
            "library": _cpu(lambda: parser.parse(text.encode())),
            "small": _cpu(lambda: read_command_line("ls -la src")),
        },
        warm=2,
    )
    slow = await alternate(
        options.rounds(5, 2),
        {"large": _cpu(lambda: read_command_line(large)), "worst": _cpu(lambda: read_command_line(worst))},
    )
    rows = [
        compare("4 KB of commands", found["ours"], "tree-sitter-bash alone", found["library"], limit=5),
        state("`ls -la src`", found["small"]),
        state("64 KB of commands", slow["large"]),
        state("64 KB made to be slow", slow["worst"], limit=2_000),
    ]
    return Group("shell", "Reading a command line", NOTE, rows)


def _cpu(action: Callable[[], object]) -> Contender:
    async def contender() -> float:
        began = time.process_time()
        action()
        return time.process_time() - began

    return contender


if __name__ == "__main__":
    main(measure)
