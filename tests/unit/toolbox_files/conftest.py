"""A workspace on disk and the file operations bound to it."""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral_protocol.error import ErrorCode, WireError
from corral_protocol.name import encode_name
from corral_toolbox.files import FileEnv, dispatch


class Box:
    """What a test needs: files in, calls, files out. Names are bytes or text."""

    def __init__(self, root: Path) -> None:
        self.root = os.fsencode(root)
        self.env = FileEnv(self.root, [(self.root, True)])

    def path(self, name: str | bytes) -> bytes:
        return os.path.join(self.root, os.fsencode(name))

    def put(self, name: str | bytes, data: bytes, mode: int = 0o644) -> None:
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(data)
        os.chmod(self.path(name), mode)

    def get(self, name: str | bytes) -> bytes:
        with open(self.path(name), "rb") as file:
            return file.read()

    def exists(self, name: str | bytes) -> bool:
        return os.path.lexists(self.path(name))

    def link(self, name: str | bytes, target: str | bytes) -> None:
        os.symlink(os.fsencode(target), self.path(name))

    def call(self, method: str, /, **params: object) -> dict[str, object]:
        return dispatch(method, params, self.env)

    def fail(self, method: str, /, **params: object) -> WireError:
        with pytest.raises(WireError) as caught:
            dispatch(method, params, self.env)
        return caught.value

    def code(self, method: str, /, **params: object) -> ErrorCode:
        return self.fail(method, **params).code

    def read(self, name: str | bytes, **params: object) -> dict[str, object]:
        return self.call("file.read", path=encode_name(os.fsencode(name)), **params)

    def edit(self, name: str, old: str, new: str, **more: object) -> dict[str, object]:
        return self.call("file.edit", path=name, edits=[{"old": old, "new": new, **more}])

    def fail_edit(self, name: str, old: str, new: str, **more: object) -> WireError:
        return self.fail("file.edit", path=name, edits=[{"old": old, "new": new, **more}])

    def write(self, name: str, data: bytes, **params: object) -> dict[str, object]:
        return self.call("file.write", path=name, content_b64=base64.b64encode(data).decode(), **params)

    def fail_write(self, name: str, data: bytes, **params: object) -> WireError:
        return self.fail("file.write", path=name, content_b64=base64.b64encode(data).decode(), **params)

    def patch(self, text: str | bytes, **params: object) -> dict[str, object]:
        return self.call("file.patch", text_b64=_encode(text), **params)

    def fail_patch(self, text: str | bytes, **params: object) -> WireError:
        return self.fail("file.patch", text_b64=_encode(text), **params)

    def tree(self) -> dict[bytes, bytes | str]:
        """Everything below the workspace: content of files, target of links, kind of the rest."""
        found: dict[bytes, bytes | str] = {}
        for folder, folders, files in os.walk(self.root):
            for name in folders + files:
                path = os.path.join(folder, name)
                key = os.path.relpath(path, self.root)
                if os.path.islink(path):
                    found[key] = "-> " + os.fsdecode(os.readlink(path))
                elif os.path.isdir(path):
                    found[key] = "dir"
                elif os.path.isfile(path):
                    with open(path, "rb") as file:
                        found[key] = file.read()
                else:
                    found[key] = "special"
        return found


def _encode(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


@pytest.fixture
def box(tmp_path: Path) -> Box:
    root = tmp_path / "workspace"
    root.mkdir()
    return Box(root)


@pytest.fixture
def special(box: Box) -> Iterator[Box]:
    """A workspace with a FIFO, a socket, and links to devices."""
    os.mkfifo(box.path("pipe"))
    server = socket.socket(socket.AF_UNIX)
    here = os.open(box.root, os.O_PATH)
    try:
        server.bind(f"/proc/self/fd/{here}/sock")  # a socket's own path may have only 107 bytes
        box.link("random", "/dev/urandom")
        box.link("fifo-link", "pipe")
        yield box
    finally:
        server.close()
        os.close(here)
