"""Removes what outside kills left behind: objects of ours whose owner is dead. Running neighbours are not touched.

Each container, volume and link directory carries its owner's pid and start time (labels.py). The janitor calls this
after a kill -9, `corral gc` on demand.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from corral.errors import SandboxError
from corral.sandbox.engine import Engine, NameTaken, ObjectGone, remove_container
from corral.sandbox.foreign import find_old_runtimes, remove_runtime
from corral.sandbox.labels import BOOT, MARK, owner_is_alive, read_boot_id
from corral.sandbox.pool.yard import find_stale_yards
from corral.sandbox.scratch import find_stale_scratch
from corral.sandbox.workspace import find_stale_link_dirs, remove_stale_locks

_FOREIGN_AGE_S = 3600.0
_PARALLEL = 8
_Object = Mapping[str, Any]


@dataclass
class GcReport:
    """What was removed (or, in a dry run, would be), and what was not and why."""

    containers: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    link_dirs: list[str] = field(default_factory=list)
    locks: list[str] = field(default_factory=list)
    """Of user ids that boxes had."""
    scratch: list[str] = field(default_factory=list)
    """Temporary directories."""
    runtimes: list[str] = field(default_factory=list)
    """Volumes with the toolbox of an earlier sandbox image."""
    trees: list[str] = field(default_factory=list)
    """Directories taken out of images that the engine has no more."""
    kept: int = 0
    """Objects of ours whose owner lives, or lives elsewhere."""
    yards: list[str] = field(default_factory=list)
    """What pools had mounted."""
    problems: list[str] = field(default_factory=list)
    dry_run: bool = False

    @property
    def is_clean(self) -> bool:
        return not any(
            (
                self.containers,
                self.volumes,
                self.link_dirs,
                self.locks,
                self.scratch,
                self.runtimes,
                self.trees,
                self.yards,
                self.problems,
            )
        )


def collect_garbage(engine: Engine, *, dry_run: bool = False) -> GcReport:
    """Remove every object of ours whose owner is dead. Blocks. Raises EngineUnavailable, EngineTimeout."""
    report = GcReport(dry_run=dry_run)
    mark = {"label": f"{MARK}=1"}
    containers = engine.ask("list containers", lambda client: client.containers(all=True, filters=mark))
    stale = _choose(containers, report, age_of=_container_age, is_running=lambda raw: raw.get("State") == "running")
    _remove_all(report, report.containers, [str(raw["Id"]) for raw in stale], _container_remover(engine))
    volumes = engine.ask("list volumes", lambda client: client.volumes(filters=mark)["Volumes"] or [])
    stale = _choose(volumes, report, age_of=_volume_age, is_running=lambda raw: False)
    _remove_all(report, report.volumes, [str(raw["Name"]) for raw in stale], _volume_remover(engine))
    report.runtimes += [name for name in find_old_runtimes(engine) if dry_run or remove_runtime(engine, name)]
    for links in find_stale_link_dirs():
        _remove_directory(report, report.link_dirs, links.path, links.remove)
    for yard in find_stale_yards():
        _remove_directory(report, report.yards, yard.path, yard.remove)
    remove_stale_scratch(report)
    report.locks += remove_stale_locks(dry_run=dry_run)
    return report


def remove_stale_scratch(report: GcReport, *parents: Path) -> None:
    """Temporary directories of dead processes in `parents`, or where temporary files go."""
    for path in find_stale_scratch(*parents):
        _remove_directory(report, report.scratch, path, partial(shutil.rmtree, path))


def _remove_directory(report: GcReport, done: list[str], path: Path, remove: Callable[[], None]) -> None:
    try:
        if not report.dry_run:
            remove()
        done.append(str(path))
    except FileNotFoundError:  # somebody else was faster
        return
    except OSError as error:
        report.problems.append(f"{path}: {error.strerror}")


def _choose(
    objects: Iterable[_Object],
    report: GcReport,
    *,
    age_of: Callable[[_Object], float],
    is_running: Callable[[_Object], bool],
) -> list[_Object]:
    chosen = []
    for raw in objects:
        marks = raw.get("Labels") or {}
        # Another kernel's boot id: a neighbour on a shared engine, or ourselves before a reboot. Only age tells.
        is_foreign = marks.get(BOOT, read_boot_id()) != read_boot_id()
        if owner_is_alive(marks) or (is_foreign and (is_running(raw) or age_of(raw) < _FOREIGN_AGE_S)):
            report.kept += 1
        else:
            chosen.append(raw)
    return chosen


def _container_age(raw: _Object) -> float:
    return time.time() - float(raw.get("Created", 0))


def _volume_age(raw: _Object) -> float:
    with contextlib.suppress(KeyError, ValueError, TypeError):
        return time.time() - datetime.fromisoformat(raw["CreatedAt"]).timestamp()
    return 0.0


def _container_remover(engine: Engine) -> Callable[[str], None]:
    return lambda name: engine.ask("remove a container", lambda client: remove_container(client, name), 60.0)


def _volume_remover(engine: Engine) -> Callable[[str], None]:
    return lambda name: engine.ask("remove a volume", lambda client: client.remove_volume(name))


def _remove_all(report: GcReport, done: list[str], names: list[str], remove: Callable[[str], None]) -> None:
    """Side by side: fifty containers one after the other take minutes."""
    if report.dry_run or not names:
        done += names
        return

    def attempt(name: str) -> str | None:
        try:
            remove(name)
        except (ObjectGone, NameTaken):  # somebody else was faster, or a container that still goes holds it
            return None
        except SandboxError as error:
            return f"{name[:12]}: {error.message}"
        done.append(name)
        return None

    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="corral-gc") as pool:
        report.problems += [problem for problem in pool.map(attempt, names) if problem]
