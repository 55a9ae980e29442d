"""Permission checks are those of the untrusted user, whose fsuid the worker has."""

from __future__ import annotations

import ctypes
import os
import stat
import threading
from collections.abc import Callable
from typing import Any

import pytest

from corral_protocol.error import ErrorCode

USER = 12345

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may lend its thread another fsuid")


def run_as_user(work: Callable[[], None]) -> None:
    """Run in a thread that has the user's fsuid and fsgid, as the toolbox's worker does."""
    failures: list[BaseException] = []

    def run() -> None:
        libc = ctypes.CDLL(None)
        libc.setfsgid(USER)
        libc.setfsuid(USER)
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


@pytest.fixture
def owned(box: Any) -> Any:
    """A workspace of the user's, with things of others in it; everybody may pass the directories above."""
    folder = os.path.dirname(box.root)
    while folder not in (b"/", b"/tmp"):
        os.chmod(folder, os.stat(folder).st_mode | 0o011)
        folder = os.path.dirname(folder)
    os.chown(box.root, USER, USER)
    box.put("mine", b"mine\n", 0o600)
    box.put("theirs", b"theirs\n", 0o600)
    box.put("closed/f", b"x\n")
    box.put("locked", b"x\n", 0o644)
    os.chown(box.path("mine"), USER, USER)
    os.chmod(box.path("closed"), 0o700)
    return box


def test_files_are_made_and_kept_as_the_users(owned: Any) -> None:
    def work() -> None:
        owned.write("new/f", b"x\n")
        owned.edit("mine", "mine", "yours")
        owned.patch("*** Begin Patch\n*** Update File: mine\n@@\n-yours\n+ours\n*** Add File: p/q\n+x\n*** End Patch\n")

    run_as_user(work)
    for name in ("new", "new/f", "mine", "p", "p/q"):
        found = os.stat(owned.path(name))
        assert (found.st_uid, found.st_gid) == (USER, USER)
    assert (owned.get("mine"), stat.S_IMODE(os.stat(owned.path("mine")).st_mode)) == (b"ours\n", 0o600)


def test_what_the_user_may_not_do_is_denied(owned: Any) -> None:
    def work() -> None:
        assert owned.code("file.read", path="theirs") == ErrorCode.PERMISSION_DENIED
        assert owned.fail_edit("theirs", "a", "b").code == ErrorCode.PERMISSION_DENIED
        assert owned.code("file.read", path="closed/f") == ErrorCode.PERMISSION_DENIED
        assert owned.code("file.list", path="closed") == ErrorCode.PERMISSION_DENIED
        assert owned.fail_write("closed/new", b"x").code == ErrorCode.PERMISSION_DENIED
        assert owned.code("file.delete", path="closed", recursive=True) == ErrorCode.PERMISSION_DENIED
        assert owned.code("file.move", source="closed/f", target="f") == ErrorCode.PERMISSION_DENIED

    before = owned.tree()
    run_as_user(work)
    assert owned.tree() == before


def test_a_file_of_somebody_else_changes_its_owner_and_that_is_told(owned: Any) -> None:
    replies: list[dict[str, Any]] = []
    run_as_user(lambda: replies.append(owned.edit("locked", "x", "y")))
    assert replies[0]["notices"] == [f"the owner changed from 0:0 to {USER}:{USER}"]
