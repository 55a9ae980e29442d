"""A workspace that changes while it is looked at: nothing outside is ever read or written."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from corral_protocol.error import WireError

ROUNDS_S = 0.6


SWAPPER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
pairs = [(sys.argv[at].encode(), sys.argv[at + 1].encode()) for at in range(1, len(sys.argv), 2)]
print("on", flush=True)
while True:
    for one, other in pairs:
        libc.renameat2(-100, one, -100, other, 2)  # RENAME_EXCHANGE: both names always exist
"""


@contextmanager
def swapping(one: bytes, other: bytes) -> Iterator[None]:
    """Exchange two names over and over, from another process: our own interpreter lock slows nothing down."""
    command = [sys.executable, "-I", "-S", "-c", SWAPPER, os.fsdecode(one), os.fsdecode(other)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


@contextmanager
def wandering(one: bytes, other: bytes) -> Iterator[None]:
    """Move a directory to and fro between two names, in a thread."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            for source, target in ((one, other), (other, one)):
                try:
                    os.rename(source, target)
                except OSError:
                    pass

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "f").write_bytes(b"secret\n")
    return folder


def attack(box: Any) -> set[str]:
    """Read, write and delete through the path under attack; gives every text that was read."""
    seen: set[str] = set()
    end = time.monotonic() + ROUNDS_S
    while time.monotonic() < end:
        for method, more in (
            ("file.read", {}),
            ("file.write", {"content_b64": "aW5zaWRlCg=="}),
            ("file.edit", {"edits": [{"old": "inside", "new": "INSIDE"}]}),
            ("file.list", {"path": "d"}),
        ):
            try:
                reply = box.call(method, **{"path": "d/f", **more})
            except WireError as error:
                seen.add(str(error.code))
            else:
                seen.add(str(reply.get("text", "")))
    return seen


def check_outside(outside: Path) -> None:
    assert {name: (outside / name).read_bytes() for name in os.listdir(outside)} == {"f": b"secret\n"}


def test_a_directory_swapped_for_a_link(box: Any, outside: Path) -> None:
    box.put("d/f", b"inside\n")
    box.link("evil", outside)
    there, evil = box.path("d"), box.path("evil")
    with swapping(there, evil):
        seen = attack(box)
    check_outside(outside)
    assert not any("secret" in text for text in seen)
    assert any("inside" in text.lower() for text in seen), "the attack never let a call through"


def test_a_file_swapped_for_a_link(box: Any, outside: Path) -> None:
    box.put("d/f", b"inside\n")
    box.link("d/evil", outside / "f")
    there, evil = box.path("d/f"), box.path("d/evil")
    with swapping(there, evil):
        seen = attack(box)
    check_outside(outside)
    assert not any("secret" in text for text in seen)


def test_a_directory_moved_away_under_a_dotdot(box: Any, outside: Path) -> None:
    # From inside d/deep/x, `../../../outside/f` would be reached by a kernel walk once deep is moved up.
    os.makedirs(box.path("d/deep/x"))
    box.put("d/f", b"inside\n")
    box.link("d/deep/x/climb", "../../../outside/f")
    box.link("d/deep/x/climb2", "../../f")
    low, high = box.path("d/deep"), box.path("deep")
    seen: set[str] = set()
    with wandering(low, high):
        end = time.monotonic() + ROUNDS_S
        while time.monotonic() < end:
            for path in ("d/deep/x/climb", "d/deep/x/climb2", "deep/x/climb"):
                try:
                    seen.add(str(box.read(path)["text"]))
                except WireError as error:
                    seen.add(str(error.code))
    assert not any("secret" in text for text in seen)


def test_recursive_delete_does_not_follow_a_swap(box: Any, outside: Path) -> None:
    box.link("evil", outside)
    there, evil = box.path("d/sub"), box.path("evil")
    end = time.monotonic() + ROUNDS_S
    with swapping(there, evil):
        while time.monotonic() < end:
            try:
                os.makedirs(there, exist_ok=True)
                box.call("file.delete", path="d", recursive=True)
            except (WireError, OSError):
                pass
            try:
                if not os.path.islink(evil) and not os.path.lexists(there):
                    os.rmdir(evil)
                    os.symlink(outside, evil)
            except OSError:
                pass
    check_outside(outside)


def test_patch_under_attack_writes_only_inside(box: Any, outside: Path) -> None:
    box.put("d/f", b"inside\n")
    box.link("evil", outside)
    there, evil = box.path("d"), box.path("evil")
    end = time.monotonic() + ROUNDS_S
    with swapping(there, evil):
        number = 0
        while time.monotonic() < end:
            number += 1
            for text in (
                f"*** Begin Patch\n*** Add File: d/n{number}/x\n+x\n*** End Patch\n",
                "*** Begin Patch\n*** Update File: d/f\n@@\n-secret\n+got\n*** End Patch\n",
                "*** Begin Patch\n*** Delete File: d/f\n*** Add File: d/f\n+again\n*** End Patch\n",
            ):
                try:
                    box.patch(text)
                except WireError:
                    pass
    check_outside(outside)


def test_a_link_that_comes_between_look_and_step(box: Any, outside: Path) -> None:
    from corral_toolbox.files.resolve import _Walk

    box.put("d/f", b"inside\n")
    walk = _Walk(box.env, b"d/f")
    for part in box.root.split(b"/")[1:]:
        walk._go_down_above(part)
    found = walk._look(b"d")
    os.rename(box.path("d"), box.path("aside"))
    box.link("d", outside)
    try:
        assert found is not None
        with pytest.raises(NotADirectoryError):
            walk._go_down(b"d", found)
    finally:
        walk.close()
