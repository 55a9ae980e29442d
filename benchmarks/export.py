"""From a box that has changed three files to the patch of it."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

from benchmarks.place import Place, drop_nothing_dirty, run_quiet
from benchmarks.run import Contender, Options, alternate, main
from benchmarks.table import Group, compare
from corral.patch.export import Exporter

CHANGED = ("d000/f001.txt", "d003/f007.txt", "d011/f100.txt")
NOTE = """\
A command in the box has appended a line to three files of a git repository; measured is what it takes until the patch
file lies there, checked. Beside it the usual way, `git add -A && git diff --cached`, on the same tree, after the same
change made there, with git's index fresh: git has to look at every file of the tree, the overlay's upper directory
holds only what changed."""


async def measure(options: Options) -> Group:
    place = options.place
    large_files, small_files = (10_000, 3_000) if options.quick else (50_000, 5_000)
    large = _make_repository(place, "large", large_files)
    small = _make_repository(place, "small", small_files)
    drop_nothing_dirty()
    found = await alternate(
        options.rounds(10, 4),
        {
            "large": _export(place, large),
            "git": _git(large),
            "small": _export(place, small),
        },
        pause_s=0.1,
    )
    size = f"{large_files:,} files, {large_files * 20_000 / 1e9:g} GB"
    rows = [
        compare(
            f"export, {size}",
            found["large"],
            "git add, git diff",
            found["git"],
            limit=None if options.quick else 1 / 10,
        ),
        compare(f"export, {size}", found["large"], f"export, {small_files:,} files", found["small"], limit=1.5),
    ]
    return Group("export", "Export of a patch", NOTE, rows)


def _make_repository(place: Place, name: str, files: int) -> Path:
    root = place.make_tree(name, files=files, file_bytes=20_000)
    run_quiet("git", "init", "-q", cwd=root)
    run_quiet("git", "-c", "core.looseCompression=0", "add", "-A", cwd=root)
    # A commit of so many files starts git's clean-up behind our back: minutes of both processors.
    calm = ("-c", "gc.auto=0", "-c", "maintenance.auto=false")
    run_quiet("git", *calm, "-c", "user.name=b", "-c", "user.email=b@b", "commit", "-q", "-m", "base", cwd=root)
    return root


def _export(place: Place, workspace: Path) -> Contender:
    change = " && ".join(f"echo more >> {path}" for path in CHANGED)

    async def contender() -> float:
        async with place.box(workspace) as (box, run_dir):
            await box.shell(change)
            await box.kill_all()
            began = time.perf_counter()
            patch = await Exporter(workspace, run_dir.patch).export(box)
            seconds = time.perf_counter() - began
        assert patch is not None
        assert [file.path for file in patch.files] == list(CHANGED), patch
        return seconds

    return contender


def _git(workspace: Path) -> Contender:
    numbers = count()

    async def contender() -> float:
        number = next(numbers)
        for path in CHANGED:
            with open(workspace / path, "ab") as file:
                file.write(b"more %d\n" % number)
        began = time.perf_counter()
        run_quiet("git", "add", "-A", cwd=workspace)
        diff = run_quiet("git", "diff", "--cached", cwd=workspace)
        seconds = time.perf_counter() - began
        assert diff.count("diff --git") == len(CHANGED)
        run_quiet("git", "reset", "-q", "--hard", cwd=workspace)
        return seconds

    return contender


if __name__ == "__main__":
    main(measure)
