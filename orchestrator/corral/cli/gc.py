"""`corral gc`: what a killed corral or a restarted engine left behind."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from corral.cli.output import note, plural, print_json, print_line
from corral.schema.visible import visible


def gc(
    *,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Remove containers, volumes and mounts of corral whose owner is dead. Running ones are never touched.

    A workspace that a killed corral apply left half-way gets back what it was.

    Parameters
    ----------
    dry_run
        Only say what would be removed.
    json
        One JSON object on stdout.
    """
    from corral.cli.apply import show_recovery
    from corral.config import load_settings
    from corral.patch import recover_applies
    from corral.sandbox.engine import Engine  # late: start-up time
    from corral.sandbox.foreign import remove_old_trees
    from corral.sandbox.gc import collect_garbage, remove_stale_scratch

    recoveries = recover_applies(dry_run=dry_run)  # first: it needs no engine
    for recovery in recoveries:
        show_recovery(recovery, dry_run=dry_run)
    report = collect_garbage(Engine(), dry_run=dry_run)
    report.trees += remove_old_trees(Engine(), load_settings().trees_dir(), dry_run=dry_run)
    remove_stale_scratch(report, load_settings().pools_dir())
    report.problems += [f"{one.workspace}: {one.problem}" for one in recoveries if one.problem]
    if json:
        applies = [{**asdict(one), "workspace": str(one.workspace)} for one in recoveries]
        print_json({**asdict(report), "applies": applies})
        return int(bool(report.problems))
    kinds = {
        "container": report.containers,
        "volume": report.volumes,
        "mount": report.link_dirs,
        "lock": report.locks,
        "temporary directory": report.scratch,
        "old runtime": report.runtimes,
        "tree of a gone image": report.trees,
        "mount of a pool": report.yards,
    }
    for kind, names in kinds.items():
        for name in names:
            print_line(f"{'would remove' if dry_run else 'removed'} {kind} {visible(name)}")
    for problem in report.problems:
        note(f"could not remove {visible(problem)}")
    if report.is_clean and not recoveries:
        print_line("nothing was left behind" + (f"; {plural(report.kept, 'object')} in use" if report.kept else ""))
    return int(bool(report.problems))
