"""`corral apply`: a run's patch, or a patch file, onto the workspace; all or nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.cli.output import mask_output, note, paint, plural, print_json, print_line
from corral.errors import ConfigError
from corral.schema.patch import Finding, Severity
from corral.schema.path import show_path
from corral.schema.visible import visible

if TYPE_CHECKING:
    from corral.patch import ApplyPlan, Recovery

MAX_PATCH_BYTES = 1 << 30


@dataclass(frozen=True)
class Chosen:
    """What to apply, where."""

    patch: bytes
    workspace: Path
    objects: Path | None  # blobs of both sides, for a three-way merge
    run_id: str | None


def apply(
    source: str,
    *,
    directory: Annotated[Path | None, Parameter(name=["--directory", "-C"])] = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    three_way: Annotated[bool, Parameter(name="--3way", negative="")] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
    allow_leaving_links: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Put a patch on the workspace: corral apply RUN, or corral apply FILE

    First everything is checked: that it is a patch we would take, that every file it changes is still as it was when
    the run began. Then all of it is applied, or nothing. Git is never run in your repository.

    Parameters
    ----------
    source
        A run's id, last for the newest, or a patch file.
    directory
        The workspace. Default: where the run worked, or the current directory for a file.
    dry_run
        Only check and say what would change.
    three_way
        Merge files that you edited since, where that is possible without a conflict.
    yes
        Apply although something needs a yes: files that run by themselves on your machine or in CI, possible secrets.
    allow_leaving_links
        Apply symbolic links that lead out of the workspace, too.
    json
        One JSON object on stdout.
    """
    from corral.patch import apply_plan, plan_apply, recover_applies  # late: start-up time

    mask_output()  # names in a patch are whoever's made it
    chosen = choose(source, directory)
    for recovery in recover_applies(chosen.workspace, dry_run=dry_run):
        show_recovery(recovery, dry_run=dry_run)
    if not chosen.patch.strip():
        print_line("nothing to apply: the patch is empty")
        return 0
    with plan_apply(chosen.patch, chosen.workspace, three_way=three_way, objects=chosen.objects) as plan:
        if not json:
            show_findings(plan.findings)
        if not dry_run and not plan.is_applied_already:
            apply_plan(plan, is_approved=yes, allow_leaving_links=allow_leaving_links)
        (_print_as_json if json else _show)(plan, dry_run)
    return 0


def choose(source: str, directory: Path | None) -> Chosen:
    """The patch that `source` names. Raises ConfigError."""
    from corral.config import load_settings  # late: start-up time
    from corral.patch.export import OBJECTS
    from corral.store.run_dir import find_run

    file = Path(source)
    if file.is_file():
        return Chosen(_read(file), (directory or Path()).absolute(), None, None)
    if "/" in source:
        raise ConfigError(f"there is no patch file {source!r}", hint="name a patch file, or a run: corral runs")
    root = load_settings().runs_dir()
    run_dir = find_run(source, root)
    workspace = directory.absolute() if directory else _find_workspace(source, root)
    kept = run_dir / "patch.diff"
    if not kept.exists():
        raise ConfigError(f"run {source!r} has no patch: it changed nothing", hint="corral log show tells what it did")
    return Chosen(_read(kept), workspace, run_dir / OBJECTS, source)


def _find_workspace(run_id: str, root: Path) -> Path:
    from corral.store.run_dir import load_meta  # late: start-up time

    meta = load_meta(run_id, root)
    if origin := meta.facts.get("workspace"):
        raise ConfigError(
            f"run {run_id!r} worked on {visible(origin)}, which is no directory of this machine",
            hint=f"corral apply {run_id} -C DIR, with a checkout of the same",
        )
    return Path(os.fsdecode(meta.workspace))


def show_recovery(recovery: Recovery, *, dry_run: bool = False) -> None:
    """What became of an apply that was killed."""
    place = repr(str(recovery.workspace))
    if recovery.problem:
        note(f"an interrupted apply in {visible(place)} could not be rolled back: {visible(recovery.problem)}")
        return
    note(f"an interrupted apply in {visible(place)} {'would be ' if dry_run else 'was '}{recovery.outcome}")
    for kept in recovery.kept:
        note(f"  edited since, so its original stays beside it: {kept}")


def show_findings(findings: tuple[Finding, ...]) -> None:
    """What somebody should look at before saying yes."""
    for one in findings:
        if one.severity is not Severity.INFO:
            where = show_path(one.path) + (f":{one.line}" if one.line else "")
            note(f"{paint(one.severity.value, 'yellow')} {where}: {visible(one.text)} [{one.kind}]")


def _read(file: Path) -> bytes:
    try:
        if file.stat().st_size > MAX_PATCH_BYTES:
            raise ConfigError(f"{str(file)!r} is larger than {MAX_PATCH_BYTES >> 20} MiB", hint="apply it in parts")
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the patch {str(file)!r}: {error.strerror}") from None


def _show(plan: ApplyPlan, dry_run: bool) -> None:
    for step in plan.steps:
        letter = "A" if step.before is None else "D" if step.after is None else "M"
        print_line(f"  {letter} {visible(step.path)}")
    for name in plan.merged:
        print_line(f"  merged with your own edits: {visible(name)}")
    for name in plan.skipped:
        print_line(f"  already so: {visible(name)}")
    if plan.is_applied_already:
        print_line("already applied: nothing to do")
    else:
        print_line(f"{'would change' if dry_run else 'applied:'} {plural(len(plan.steps), 'file')}")


def _print_as_json(plan: ApplyPlan, dry_run: bool) -> None:
    print_json(
        {
            "applied": not dry_run and not plan.is_applied_already,
            "already_applied": plan.is_applied_already,
            "files": [visible(step.path) for step in plan.steps],
            "merged": list(plan.merged),
            "skipped": list(plan.skipped),
            "findings": [one.model_dump(mode="json") for one in plan.findings],
        }
    )
