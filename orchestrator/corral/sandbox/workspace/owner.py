"""As whom untrusted code runs: the user's own ids, or for root one id per box from a reserved range.

On an engine that maps ids the range is the engine's, and the box's id is another outside than inside.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from corral.errors import SandboxError
from corral.sandbox.remap import Remap
from corral.sandbox.workspace.kernel.idmap import BOX_IDS, FIRST_BOX_ID, IdMap, open_namespace

_LOCKS = Path("/run/corral/ids")
_TRIES = 64


@dataclass(frozen=True)
class BoxOwner:
    """The ids of one box, and how the owner of the workspace is seen from it."""

    uid: int
    gid: int
    users: IdMap  # to what the box's files and processes have on this host
    groups: IdMap
    lock: int | None  # a descriptor; as long as it is open no other box of this host gets the id
    host_uid: int  # the same user and group as this host sees them
    host_gid: int
    namespace: int | None = None
    """A descriptor of a user namespace with these maps, made ahead: it takes longer than all of the mounting."""

    @property
    def is_mapped(self) -> bool:
        """Whether the box's files belong to another id than those of the workspace."""
        return self.lock is not None

    def release(self) -> None:
        """Give the id back. Once only."""
        if self.namespace is not None:
            os.close(self.namespace)
        if self.lock is not None:
            with contextlib.suppress(OSError):
                os.unlink(_LOCKS / str(self.host_uid))
            os.close(self.lock)


def choose_owner(workspace: os.stat_result, preferred_uid: int | None, remap: Remap | None = None) -> BoxOwner:
    """The ids for a box over this workspace; `preferred_uid` is the one an earlier box over the same changes had here.

    `remap` is the engine's. Raises SandboxError.
    """
    user, group = os.geteuid(), os.getegid()
    if user != 0:
        if remap is not None:
            user, group = _pick_mapped(user, remap), _pick_mapped(group, remap)
            return _own(user, group, remap.first_uid + user, remap.first_gid + group)
        return _own(user, group, user, group)
    if remap is None:
        ids = range(FIRST_BOX_ID, FIRST_BOX_ID + BOX_IDS)
        number, lock = _reserve_id(preferred_uid if preferred_uid in ids else None, ids)
        inside, host_gid = number, number
    else:
        ids = range(remap.first_uid + remap.box_ids.start, remap.first_uid + remap.box_ids.stop)
        if preferred_uid is not None and preferred_uid not in ids:
            raise SandboxError(
                f"the run's changes belong to user id {preferred_uid}, which the engine's containers do not have",
                hint="go on with the engine that the run was started on",
            )
        number, lock = _reserve_id(preferred_uid, ids)
        inside = number - remap.first_uid
        host_gid = remap.first_gid + inside
    # SECURITY: untrusted code never runs as uid 0, nor as any user of this host.
    # test_workspace_docker.py::test_box_user_is_nobody_of_this_host
    return BoxOwner(
        inside, inside, IdMap(workspace.st_uid, number), IdMap(workspace.st_gid, host_gid), lock, number, host_gid
    )


def _own(uid: int, gid: int, host_uid: int, host_gid: int) -> BoxOwner:
    """An ordinary user's: nothing is mapped, and nobody else is to be kept off."""
    return BoxOwner(uid, gid, IdMap(host_uid, host_uid), IdMap(host_gid, host_gid), None, host_uid, host_gid)


def reserve_owner(workspace: os.stat_result) -> BoxOwner:
    """For root: the ids of a box over a workspace that has this one's owner, with all that takes time done.

    Raises SandboxError, OSError where the kernel has no user namespaces."""
    owner = choose_owner(workspace, None)
    try:
        return replace(owner, namespace=open_namespace(owner.users, owner.groups))
    except OSError:
        owner.release()
        raise


def suits(owner: BoxOwner, workspace: os.stat_result) -> bool:
    """Whether reserved ids are those for this workspace."""
    return (owner.users.disk, owner.groups.disk) == (workspace.st_uid, workspace.st_gid)


def _pick_mapped(own: int, remap: Remap) -> int:
    """The user's own number, unless it is root's or not in the range: here it is another user's in any case."""
    return own if 0 < own < remap.box_ids.stop else remap.box_ids.start


def _reserve_id(preferred: int | None, ids: range) -> tuple[int, int]:
    os.makedirs(_LOCKS, mode=0o700, exist_ok=True)
    if preferred is not None:
        lock = _try_lock(preferred)
        if lock is None:
            raise SandboxError(
                f"the box's user id {preferred} is still in use", hint="the box that had it has not ended yet"
            )
        return preferred, lock
    for _ in range(_TRIES):
        number = secrets.choice(ids)
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
