"""As whom untrusted code runs: the user's own ids, or for root one id per box from a reserved range."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from corral.errors import SandboxError
from corral.sandbox.workspace.kernel.idmap import BOX_IDS, FIRST_BOX_ID, IdMap

_LOCKS = Path("/run/corral/ids")
_TRIES = 64


@dataclass(frozen=True)
class BoxOwner:
    """The ids of one box, and how the owner of the workspace is seen from it."""

    uid: int
    gid: int
    users: IdMap
    groups: IdMap
    lock: int | None  # a descriptor; as long as it is open no other box of this host gets the id

    @property
    def is_mapped(self) -> bool:
        """Whether the box's files belong to another id than those of the workspace."""
        return self.lock is not None

    def release(self) -> None:
        """Give the id back. Once only."""
        if self.lock is not None:
            with contextlib.suppress(OSError):
                os.unlink(_LOCKS / str(self.uid))
            os.close(self.lock)


def choose_owner(workspace: os.stat_result, preferred_uid: int | None) -> BoxOwner:
    """The ids for a box over this workspace; `preferred_uid` is the one an earlier box over the same changes had."""
    user = os.geteuid()
    if user != 0:
        return BoxOwner(user, os.getegid(), IdMap(user, user), IdMap(os.getegid(), os.getegid()), None)
    number, lock = _reserve_id(preferred_uid)
    # SECURITY: untrusted code never runs as uid 0, nor as any user of this host.
    # test_workspace_docker.py::test_box_user_is_nobody_of_this_host
    return BoxOwner(number, number, IdMap(workspace.st_uid, number), IdMap(workspace.st_gid, number), lock)


def _reserve_id(preferred: int | None) -> tuple[int, int]:
    os.makedirs(_LOCKS, mode=0o700, exist_ok=True)
    if preferred is not None and FIRST_BOX_ID <= preferred < FIRST_BOX_ID + BOX_IDS:
        lock = _try_lock(preferred)
        if lock is None:
            raise SandboxError(
                f"the box's user id {preferred} is still in use", hint="the box that had it has not ended yet"
            )
        return preferred, lock
    for _ in range(_TRIES):
        number = FIRST_BOX_ID + secrets.randbelow(BOX_IDS)
        lock = _try_lock(number)
        if lock is not None:
            return number, lock
    raise SandboxError("no free user id for the box", hint=f"too many boxes run on this host; locks are in {_LOCKS}")


def remove_stale_locks(*, dry_run: bool = False) -> list[str]:
    """Remove the locks whose box was killed with its orchestrator; returns their paths. A held one stays."""
    if os.geteuid() != 0:
        return []
    try:
        names = os.listdir(_LOCKS)
    except FileNotFoundError:
        return []
    removed = []
    for name in sorted(filter(str.isdecimal, names)):
        with contextlib.suppress(FileNotFoundError):  # its owner was faster
            lock = _try_lock(int(name), os.O_RDWR)
            if lock is not None:
                if not dry_run:
                    os.unlink(_LOCKS / name)
                os.close(lock)
                removed.append(str(_LOCKS / name))
    return removed


def _try_lock(number: int, flags: int = os.O_RDWR | os.O_CREAT) -> int | None:
    descriptor = os.open(_LOCKS / str(number), flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    if os.fstat(descriptor).st_nlink == 0:  # its last owner removed it between our two calls
        os.close(descriptor)
        return None
    return descriptor
