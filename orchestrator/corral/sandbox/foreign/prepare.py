"""What a box of an image that is not ours needs besides: the runtime, its user's name, a home of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from corral.sandbox.engine import Engine
from corral.sandbox.entry import SANDBOX_ENTRY, Entry
from corral.sandbox.foreign.account import HOME, Accounts, load_accounts
from corral.sandbox.foreign.find import FoundImage
from corral.sandbox.foreign.runtime import COMMAND, PLACE, describe_runtime
from corral.sandbox.spec import SandboxSpec
from corral.schema.visible import visible

_NAMELESS = "the box's user has no name in this image: the engine cannot see our files"


Share = Callable[[str, bytes], str]
"""Puts a file where the engine sees it, and says where; "" where the engine does not see our files."""


async def prepare_entry(
    engine: Engine, image: FoundImage, spec: SandboxSpec, *, uid: int, gid: int, share: Share
) -> Entry:
    """How to start this image's box. Raises SandboxError."""
    if image.sandbox is None:
        return SANDBOX_ENTRY
    files: list[dict[str, Any]] = []
    if share("passwd", b""):
        accounts = await load_accounts(engine, image.facts.id, spec.run_id)
        files = _share_accounts(accounts.with_box(uid, gid), share)
    mounts = (describe_runtime(image.sandbox.id), *files)
    return Entry(COMMAND, mounts, HOME, (uid, gid), tuple(_warn(image, spec, has_name=bool(files))))


def _warn(image: FoundImage, spec: SandboxSpec, *, has_name: bool) -> Iterator[str]:
    if not has_name:
        yield _NAMELESS
    own = ("/tmp", "/run", "/dev/shm", HOME, PLACE, spec.mount_point)
    volumes = [place for place in sorted(image.facts.volumes) if place.rstrip("/") not in own]
    if volumes:
        yield f"volumes of the image are empty in the box, and not to be written to: {visible(', '.join(volumes))}"


def _share_accounts(accounts: Accounts, share: Share) -> list[dict[str, Any]]:
    mounts = []
    for name, text in (("passwd", accounts.passwd), ("group", accounts.group)):
        source = share(name, text)
        if not source:
            return []  # a full disk: told by whoever cannot do without
        mounts.append({"Type": "bind", "Source": source, "Target": f"/etc/{name}", "ReadOnly": True})
    return mounts
