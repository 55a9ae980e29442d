"""`corral runs`: what is kept here, and its removal."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from corral.cli.output import mask_output, print_json, print_line
from corral.config import load_settings
from corral.errors import ConfigError, RecordError
from corral.schema.visible import visible

app = App(name="runs", help="List the runs kept here, or remove them.", help_format="plaintext")


@app.default
def list_all(*, json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """List the runs kept here, newest first.

    Parameters
    ----------
    json
        JSON Lines, one object a run.
    """
    from corral.store.run_dir import list_runs, load_meta  # late: start-up time

    mask_output()
    root = load_settings().runs_dir()
    runs = list_runs(root)
    if not runs and not json:
        print_line("no runs are kept here")
    for run_id in runs:
        try:
            meta = load_meta(run_id, root)
            workspace, command, outcome = (
                visible(meta.facts.get("workspace") or meta.workspace),
                meta.command,
                meta.outcome or _find_state(run_id, root),
            )
        except RecordError as error:
            workspace, command, outcome = "", "", error.message
        if json:
            print_json({"run": run_id, "workspace": workspace, "command": command, "outcome": outcome})
        else:
            print_line(f"{run_id}  {_shorten(outcome, 24)}  {_shorten(command)}  {workspace}")
    return 0


@app.command
def rm(*runs: str) -> int:
    """Remove runs: record, changes, patch. This cannot be undone.

    Parameters
    ----------
    runs
        Their ids.
    """
    from corral.app import remove_run  # late: start-up time

    if not runs:
        raise ConfigError("no run named", hint="corral runs lists them")
    root = load_settings().runs_dir()
    for run_id in runs:
        asyncio.run(remove_run(run_id, root))
        print_line(f"removed {os.path.basename(run_id)}")
    return 0


def _find_state(run_id: str, root: Path) -> str:
    """Of a run that has not said how it ended."""
    from corral.record import RECORD_NAME, is_being_written  # late: start-up time

    return "running" if is_being_written(root / run_id / RECORD_NAME) else "killed"


def _shorten(command: str, length: int = 48) -> str:
    text = visible(command)
    return f"{text[: length - 1]}…" if len(text) > length else f"{text:<{length}}"
