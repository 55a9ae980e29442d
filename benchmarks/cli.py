"""How soon the command line answers."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.place import run_quiet
from benchmarks.run import Options, alternate, main, timed_blocking
from benchmarks.table import Group, state

NOTE = "From the process's start to its end; Python's own start and end beside."


async def measure(options: Options) -> Group:
    corral = Path(sys.executable).with_name("corral")
    found = await alternate(
        options.rounds(20, 5),
        {
            "help": timed_blocking(lambda: run_quiet(corral, "--help")),
            "exec": timed_blocking(lambda: run_quiet(corral, "exec", "--help")),
            "python": timed_blocking(lambda: run_quiet(sys.executable, "-c", "pass")),
        },
    )
    rows = [
        state("`corral --help`", found["help"], limit=300),
        state("`corral exec --help`", found["exec"], limit=300),
        state("of these: Python, doing nothing", found["python"]),
    ]
    return Group("cli", "The command line", NOTE, rows)


if __name__ == "__main__":
    main(measure)
