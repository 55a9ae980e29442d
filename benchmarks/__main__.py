"""All groups, each in a process of its own; the table on the terminal and, when asked, docs/performance.md."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import look_at_machine
from benchmarks.report import render_report
from benchmarks.table import Group, load, render_text

GROUPS = (
    "start",
    "pool",
    "call",
    "record",
    "shell",
    "export",
    "output",
    "memory",
    "activity",
    "network",
    "redact",
    "cli",
)


def run_group(name: str, arguments: argparse.Namespace) -> Group:
    with tempfile.TemporaryDirectory() as directory:
        found = Path(directory) / "group.json"
        command = [sys.executable, "-m", f"benchmarks.{name}", "--no-fail", "--json", str(found)]
        command += ["--quick"] if arguments.quick else []
        command += ["--dir", str(arguments.dir)] if arguments.dir else []
        subprocess.run(command, check=True)
        return load(found.read_text(encoding="utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"all if none is named: {' '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller trees")
    parser.add_argument("--no-fail", action="store_true", help="exit 0 although a limit is missed")
    parser.add_argument("--dir", type=Path, help="where trees and runs are made (default: beside corral's own data)")
    parser.add_argument("--write", type=Path, help="write the report to this file, too")
    arguments = parser.parse_args()
    names = arguments.groups or GROUPS
    if unknown := set(names) - set(GROUPS):
        parser.error(f"there is no group {', '.join(sorted(unknown))}")
    machine = look_at_machine()
    print(machine.describe(), flush=True)
    groups = []
    for name in names:
        groups.append(run_group(name, arguments))
        print(f"\n{render_text(groups[-1])}", flush=True)
    if arguments.write:
        arguments.write.write_text(render_report(machine, groups, quick=arguments.quick), encoding="utf-8")
    missed = [f"{group.name}: {row.what}" for group in groups for row in group.rows if row.is_over]
    print(f"\nmissed: {'; '.join(missed) or 'none'}")
    return 1 if missed and not arguments.no_fail else 0


if __name__ == "__main__":
    sys.exit(main())
