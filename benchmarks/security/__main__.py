"""All attacks, or those named; the table on the terminal and, when asked, docs/security.md."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import look_at_machine
from benchmarks.security.attacks import ATTACKS
from benchmarks.security.report import render_report
from benchmarks.security.suite import find_faults, try_attacks
from corral.sandbox.image import build_image


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ATTACK", help="attacks or families; all if none is named")
    parser.add_argument("--write", type=Path, help="write the report to this file, too")
    parser.add_argument("--gvisor", action="store_true", help="plain Docker and ours with the runtime runsc, too")
    arguments = parser.parse_args()
    wanted = set(arguments.names)
    ids = [a.id for a in ATTACKS.values() if not wanted or wanted & {a.id, a.family}]
    if not ids:
        parser.error("there is no such attack, nor such a family")
    machine = look_at_machine()
    # Beside corral's own data in kind: a disk on which an overlay can be mounted.
    folder = Path(tempfile.mkdtemp(prefix="corral-attacks-", dir="/var/tmp"))
    try:
        rows = try_attacks(folder, build_image().tag, ids, gvisor=arguments.gvisor)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for row in rows:
        others = [outcome.verdict if outcome else "" for outcome in (row.plain, row.open, row.gvisor, row.ours_gvisor)]
        ends = " ".join(f"{verdict:<8}" for verdict in (row.ours.verdict, *others))
        print(f"{row.attack.id:<32} {ends} {row.ours.reason[:60]}")
    if arguments.write:
        arguments.write.write_text(render_report(machine, rows), encoding="utf-8")
    faults = find_faults(rows)
    print(f"\n{len(rows)} attacks; faults: {len(faults)}", *faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
