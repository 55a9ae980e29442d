"""/etc/passwd and /etc/group of an image that is not ours: kept as they are, with the box's user in them.

Read once per image and kept in the user's cache: an image is named by its content.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from corral.sandbox.engine import Engine
from corral.sandbox.foreign.image_file import open_image, read_small_file

USER = b"box"
HOME = "/home/box"


@dataclass(frozen=True)
class Accounts:
    """The two files, as an image has them; b"" where it has none."""

    passwd: bytes
    group: bytes

    def with_box(self, uid: int, gid: int) -> Accounts:
        """The same with the box's user, before any other of that number: a program that asks gets our name."""
        passwd = b"%s:x:%d:%d:%s:%s:/bin/sh" % (USER, uid, gid, USER, HOME.encode())
        return Accounts(
            _add(self.passwd or b"root:x:0:0:root:/root:/bin/sh\n", passwd),
            _add(self.group or b"root:x:0:\n", b"%s:x:%d:" % (USER, gid)),
        )


def _add(text: bytes, line: bytes) -> bytes:
    """Behind the first line, which is root's; another user of our name goes."""
    first, *others = [old for old in text.split(b"\n") if old and not old.startswith(USER + b":")] or [b""]
    return b"\n".join(part for part in (first, line, *others) if part) + b"\n"


async def load_accounts(engine: Engine, image_id: str, run_id: str) -> Accounts:
    """From the cache, else from the image. Raises SandboxError."""
    place = platformdirs.user_cache_path("corral", appauthor=False) / "accounts" / f"{image_id.partition(':')[2]}.json"
    kept = _load(place)
    if kept is not None:
        return kept
    async with open_image(engine, image_id, run_id) as container:
        passwd = await read_small_file(engine, container, "/etc/passwd")
        group = await read_small_file(engine, container, "/etc/group")
    accounts = Accounts(passwd, group)
    _save(place, accounts)
    return accounts


def _load(place: Path) -> Accounts | None:
    try:
        found = json.loads(place.read_text(encoding="ascii"))
        return Accounts(base64.b64decode(found["passwd"]), base64.b64decode(found["group"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _save(place: Path, accounts: Accounts) -> None:
    body = {name: base64.b64encode(getattr(accounts, name)).decode("ascii") for name in ("passwd", "group")}
    fresh = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):  # a cache: without it the next start asks again
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.write_text(json.dumps(body), encoding="ascii")
        os.replace(fresh, place)
