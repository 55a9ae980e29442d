"""A workspace that changes while it is looked at: nothing outside is ever read or written."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from corral_protocol.error import WireError

ROUNDS_S = 0.6


@contextmanager
def swapping(*steps: Any) -> Iterator[None]:
    """Run the steps over and over in another thread."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            for step in steps:
                try:
                    step()
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
    there, aside, evil = box.path("d"), box.path("aside"), box.path("evil")
    with swapping(
        lambda: os.rename(there, aside),
        lambda: os.rename(evil, there),
        lambda: os.rename(there, evil),
        lambda: os.rename(aside, there),
    ):
        seen = attack(box)
    check_outside(outside)
    assert not any("secret" in text for text in seen)
    assert any("inside" in text.lower() for text in seen), "the attack never let a call through"


def test_a_file_swapped_for_a_link(box: Any, outside: Path) -> None:
    box.put("d/f", b"inside\n")
    box.link("d/evil", outside / "f")
    there, evil, aside = box.path("d/f"), box.path("d/evil"), box.path("d/aside")
    with swapping(
        lambda: os.rename(there, aside),
        lambda: os.rename(evil, there),
        lambda: os.rename(there, evil),
        lambda: os.rename(aside, there),
    ):
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
    with swapping(lambda: os.rename(low, high), lambda: os.rename(high, low)):
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
    there, evil, aside = box.path("d/sub"), box.path("evil"), box.path("aside")
    end = time.monotonic() + ROUNDS_S
    with swapping(
        lambda: os.rename(there, aside),
        lambda: os.rename(evil, there),
        lambda: os.rename(there, evil),
        lambda: os.rename(aside, there),
    ):
        while time.monotonic() < end:
            try:
                os.makedirs(box.path("d/sub"), exist_ok=True)
                box.call("file.delete", path="d", recursive=True)
            except (WireError, OSError):
                pass
            try:
                if not os.path.lexists(there):
                    os.symlink(outside, evil)
            except OSError:
                pass
    check_outside(outside)


def test_patch_under_attack_writes_only_inside(box: Any, outside: Path) -> None:
    box.put("d/f", b"inside\n")
    box.link("evil", outside)
    there, aside, evil = box.path("d"), box.path("aside"), box.path("evil")
    end = time.monotonic() + ROUNDS_S
    with swapping(
        lambda: os.rename(there, aside),
        lambda: os.rename(evil, there),
        lambda: os.rename(there, evil),
        lambda: os.rename(aside, there),
    ):
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
