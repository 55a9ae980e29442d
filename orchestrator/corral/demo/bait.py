"""What is laid out for the hostile repository to find: secrets made for this one run, a port that counts who comes.

Whether an attempt got through is then a fact of the trusted side: a secret turned up or it did not.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

ENVIRONMENT = "environment"
KEY = "keys"
ENV_FILE = "env_file"
GIT_CREDENTIALS = "git_credentials"
_VARIABLE = "CORRAL_DEMO_SECRET"


@dataclass
class Bait:
    """`secrets` by the attempt that is after each; `connections` counts arrivals at our port."""

    workspace: Path
    secrets: dict[str, bytes] = field(default_factory=dict)
    connections: int = 0

    def leaked(self, attempt: str, haystack: bytes) -> bool:
        return self.secrets[attempt] in haystack


@asynccontextmanager
async def laid_out(workspace: Path) -> AsyncIterator[Bait]:
    """The bait in and beside a copy of the hostile repository, and in our own environment until the end."""
    bait = Bait(workspace)
    for attempt in (ENVIRONMENT, KEY, ENV_FILE, GIT_CREDENTIALS):
        bait.secrets[attempt] = f"bait-{secrets.token_hex(16)}".encode()
    key = workspace.parent / "host" / "id_ed25519"
    key.parent.mkdir(mode=0o700)
    key.write_bytes(bait.secrets[KEY])
    (workspace / ".env").write_bytes(b"API_TOKEN=" + bait.secrets[ENV_FILE] + b"\n")
    _make_git_dir(workspace / ".git", bait.secrets[GIT_CREDENTIALS].decode())

    def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bait.connections += 1
        writer.close()

    server = await asyncio.start_server(count, "127.0.0.1", 0)
    os.environ[_VARIABLE] = bait.secrets[ENVIRONMENT].decode()
    try:
        port = server.sockets[0].getsockname()[1]
        (workspace / "targets.json").write_text(json.dumps({"key": str(key), "port": port}) + "\n")
        yield bait
    finally:
        del os.environ[_VARIABLE]
        server.close()
        await server.wait_closed()


def _make_git_dir(git: Path, credential: str) -> None:
    """A repository without a commit, as far as anybody needs it: hooks and configuration are what is attacked."""
    for name in ("hooks", "info", "objects", "refs/heads"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    remote = f"https://user:{credential}@git.example.com/colours.git"
    (git / "config").write_text(
        f'[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote "origin"]\n\turl = {remote}\n'
    )


def digest_tree(root: Path) -> dict[str, str]:
    """Every entry below `root` with its mode and a digest of what is in it; links are not followed."""
    found: dict[str, str] = {}
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder) / name
            status = path.lstat()
            content = b""
            if stat.S_ISLNK(status.st_mode):
                content = os.fsencode(os.readlink(path))
            elif stat.S_ISREG(status.st_mode):
                content = path.read_bytes()
            found[str(path.relative_to(root))] = f"{status.st_mode:o} {hashlib.sha256(content).hexdigest()}"
    return found
