"""Images that have nothing of corral in them, made here: no registry, no network.

What runs in them is a static program of ours, compiled in the sandbox image; the distribution's busybox-static; and its
musl. Where a package is missing, the test is skipped and says which.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import platform
import secrets
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import docker
import pytest

from corral_runtime.elf import NotOurs, read_interpreter

MUSL = Path(f"/lib/ld-musl-{platform.machine()}.so.1")

# Enough of a program for calls in an image without a shell.
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "env")) for (char **e = environ; *e; e++) puts(*e);
    else if (!strcmp(what, "pwd")) puts(getcwd((char[4096]){0}, 4096));
    else if (!strcmp(what, "id")) printf("%d %d\n", getuid(), getgid());
    else if (!strcmp(what, "cat")) {
        FILE *f = fopen(argv[2], "r");
        if (!f) { perror(argv[2]); return 1; }
        for (int c; (c = getc(f)) != EOF;) putchar(c);
    } else if (!strcmp(what, "write")) {
        FILE *f = fopen(argv[2], "w");
        if (!f) { perror(argv[2]); return 1; }
        fputs(argv[3], f);
        if (fclose(f)) { perror(argv[2]); return 1; }
    } else if (!strcmp(what, "exit")) return atoi(argv[2]);
    else if (!strcmp(what, "sleep")) sleep(atoi(argv[2]));
    return 0;
}
"""
# Against musl's one library, without its headers and start files.
MUSL_PROGRAM = """
int puts(const char *); void exit(int);
int __libc_start_main(int (*)(int, char **), int, char **, void (*)(void), void (*)(void), void (*)(void));
int main(int argc, char **argv) { return puts("hello from musl") < 0; }
void _start(void) { static char *argv[] = {"musl", 0}; __libc_start_main(main, 1, argv, 0, 0, 0); }
"""
APPLETS = (
    "cat chmod cp echo env false grep head id kill ls mkdir mv printf pwd rm seq sh sleep stat touch true wc whoami yes"
)


@dataclass
class ForeignImage:
    """The files of an image, and what its configuration says."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    config: dict[str, object] = field(default_factory=dict)
    architecture: str = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]

    def load(self, client: docker.DockerClient) -> str:
        """Put it into the engine, in the form that `docker save` writes; its name. The caller removes it."""
        name = f"corral-test-foreign-{secrets.token_hex(4)}:1"
        layer = self._pack()
        digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
        described = {
            "architecture": self.architecture,
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [digest]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        parts = ForeignImage(
            {
                "manifest.json": (json.dumps(manifest).encode(), 0o644),
                "config.json": (json.dumps(described).encode(), 0o644),
                "layer.tar": (layer, 0o644),
            }
        )
        for _ in client.api.load_image(parts._pack()):
            pass
        return name

    def _pack(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for path, (body, mode) in self.files.items():
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(body), mode
                tar.addfile(entry, io.BytesIO(body))
            for path, target in self.links.items():
                entry = tarfile.TarInfo(path)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
        return buffer.getvalue()


@contextmanager
def lend_engine(client: docker.DockerClient) -> Iterator[Callable[[ForeignImage], str]]:
    """Puts images into the engine, and takes them out again in the end."""
    with ExitStack() as undo:

        def put(image: ForeignImage) -> str:
            name = image.load(client)
            undo.callback(client.api.remove_image, name)
            return name

        yield put


def build_program(client: docker.DockerClient, sandbox_image: str, source: str, *flags: str) -> bytes:
    """Compiled in the sandbox image."""
    script = 'printf %s "$1" > /tmp/p.c; shift; cc -O1 -o /tmp/p /tmp/p.c "$@" >&2 && base64 /tmp/p'
    mounts = [docker.types.Mount(str(MUSL), str(MUSL), type="bind", read_only=True)] if MUSL.exists() else []
    text = client.containers.run(
        sandbox_image,
        entrypoint=["sh", "-c", script, "sh", source, *flags],
        network_mode="none",
        mounts=mounts,
        remove=True,
    )
    return base64.b64decode(text)


@lru_cache
def read_busybox() -> bytes:
    """The static busybox of this machine, or a skip."""
    path = shutil.which("busybox")
    body = Path(path).read_bytes() if path else b""
    try:
        read_interpreter(body)
    except NotOurs as error:
        if "static" in str(error):
            return body
    pytest.skip("no static busybox on this machine: apt-get install busybox-static")


def busybox_image() -> ForeignImage:
    """A shell and the usual programs, all one static file; no libc, no Python, no /etc."""
    links = {f"bin/{name}": "busybox" for name in APPLETS.split()}
    return ForeignImage({"bin/busybox": (read_busybox(), 0o755)}, links)


def musl_image(client: docker.DockerClient, sandbox_image: str) -> ForeignImage:
    """A busybox, and a program that only musl can load: another C library than the toolbox's, under another loader."""
    if not MUSL.exists():
        pytest.skip("no musl on this machine: apt-get install musl")
    flags = ("-nostdlib", "-nostartfiles", "-no-pie", str(MUSL), f"-Wl,--dynamic-linker={MUSL}")
    image = busybox_image()
    image.files |= {
        "bin/musl": (build_program(client, sandbox_image, MUSL_PROGRAM, *flags), 0o755),
        str(MUSL)[1:]: (MUSL.read_bytes(), 0o755),
    }
    return image


def static_image(program: bytes) -> ForeignImage:
    """One static program and nothing else: no shell, no directory."""
    return ForeignImage({"app": (program, 0o755)})
