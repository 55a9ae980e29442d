"""The base of the sandbox image: a named one, a registry's, or one made from the distribution's packages.

No registry host stands here: a bare name is resolved by the engine, and packages come from wherever the host's own
apt gets them. Door to one host process: mmdebstrap.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import docker
from docker.errors import DockerException, ImageNotFound
from docker.utils import parse_repository_tag

from corral.errors import ImageError
from corral.sandbox import reach
from corral.sandbox.image.context import BASE_NAME, BuildContext
from corral.schema.visible import visible

REGISTRY_BASE = "debian:bookworm-slim"
FALLBACK_SUITE = "bookworm"
_SUITES = ("bookworm", "trixie")
_REGISTRY_TIMEOUT_S = 8
# Files that no box reads; copyright files stay.
_LEAN = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)

# Named outright: a host of another distribution trusts its own keys only.
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_SHOWN_LINES = ("I: running apt-get", "I: downloading", "I: extracting", "I: installing", "I: creating")

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Base:
    """What the image is built on, under a name the engine knows."""

    name: str
    source: str
    """`local`, `registry` or `packages`."""


def open_client(engine_url: str | None, *, timeout_s: float) -> docker.DockerClient:
    """A connection of its own to the engine of the environment, or to `engine_url`.

    Raises DockerException, OSError, EngineUnavailable.
    """
    address = choose_address(engine_url)
    if address.is_local:
        # docker-py leaves its socket open when nobody answers, and buries the reason.
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as knock:
            knock.settimeout(timeout_s)
            knock.connect(address.url.removeprefix("unix://"))
    return reach.open_client(address, timeout_s=int(timeout_s))


def choose_address(engine_url: str | None) -> reach.Address:
    """Raises EngineUnavailable."""
    return reach.find_address(os.environ if engine_url is None else {**os.environ, "DOCKER_HOST": engine_url})


def choose_base(
    engine: docker.DockerClient,
    context: BuildContext,
    *,
    name: str | None,
    fresh: bool,
    engine_url: str | None,
    on_progress: Progress,
) -> Base:
    """The named base, or the first that can be had: packages made earlier, a registry's, packages made now."""
    if name is not None:
        if not fresh and _is_known(engine, name):
            return Base(name, "local")
        if _pull(engine, name, engine_url=engine_url, on_progress=on_progress):
            return Base(name, "registry")
        if _is_known(engine, name):
            return Base(name, "local")
        raise ImageError(
            f"no base image {name!r}: the engine does not have it and no registry gave it",
            hint="name one that `docker image ls` shows, or leave --base out",
        )
    suite = _host_suite()
    made = f"{BASE_NAME}:{base_key(context, suite)}"
    if not fresh and _is_known(engine, made):
        return Base(made, "packages")
    if _pull(engine, REGISTRY_BASE, engine_url=engine_url, on_progress=on_progress):
        return Base(REGISTRY_BASE, "registry")
    _make_from_packages(engine, context.packages(), suite=suite, name=made, on_progress=on_progress)
    return Base(made, "packages")


def base_key(context: BuildContext, suite: str) -> str:
    """The base's own content: another package list, suite, architecture or trim is another base."""
    return BuildContext(()).content_hash(suite, platform.machine(), *_LEAN, "--", *context.packages())


def _is_known(engine: docker.DockerClient, name: str) -> bool:
    try:
        engine.api.inspect_image(name)  # type: ignore[no-untyped-call]
    except ImageNotFound:
        return False
    return True


def _pull(engine: docker.DockerClient, name: str, *, engine_url: str | None, on_progress: Progress) -> bool:
    """Whether a registry gave `name`. One that does not answer within seconds is no registry."""
    on_progress(f"asking the registry for {name}")
    repository, tag = parse_repository_tag(name)
    try:
        with contextlib.closing(open_client(engine_url, timeout_s=_REGISTRY_TIMEOUT_S)) as probe:
            probe.api.inspect_distribution(name)  # type: ignore[no-untyped-call]
        for event in engine.api.pull(repository, tag=tag or "latest", stream=True, decode=True):
            if "error" in event:
                return False
    except (DockerException, OSError):
        on_progress("no registry answers")
        return False
    return True


def _make_from_packages(
    engine: docker.DockerClient, packages: tuple[str, ...], *, suite: str, name: str, on_progress: Progress
) -> None:
    """mmdebstrap's tar stream straight into the engine; the name is given only when both ends were content."""
    sources = _host_sources(suite)
    command = [_find_mmdebstrap(), *_mmdebstrap_arguments(packages, suite=suite)]
    if sources:
        command.append("-")  # from stdin; without it mmdebstrap takes its own for that suite
    on_progress(f"making the base from {len(packages)} packages of {suite}; about a minute, once")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        output, errors = process.stdout, process.stderr
        last: deque[str] = deque(maxlen=40)
        reader = threading.Thread(target=_report_lines, args=(errors, last, on_progress), daemon=True)
        reader.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended already, and says why
                process.stdin.write(sources.encode())
                process.stdin.close()
            answer = engine.api.import_image_from_stream(iter(lambda: output.read(1 << 20), b""))
            status = process.wait()
        finally:
            _end_group(process)
            reader.join()
    image_id = str(json.loads(answer.strip().splitlines()[-1]).get("status", ""))
    if status != 0:
        if image_id:
            engine.api.remove_image(image_id)
        # Its first complaint is the cause; the rest follows from that.
        cause = next((line for line in last if line.startswith("E: ")), last[-1] if last else "")
        raise ImageError(f"mmdebstrap ended with {status}: {cause}", hint=_failure_hint(cause, suite))
    if not image_id.startswith("sha256:"):
        raise ImageError(f"the engine did not take the base: {answer.strip()[-300:]!r}")
    repository, tag = parse_repository_tag(name)
    engine.api.tag(image_id, repository, tag)


def _find_mmdebstrap() -> str:
    for program, package in (("mmdebstrap", "mmdebstrap"), *((("newuidmap", "uidmap"),) if os.geteuid() else ())):
        if shutil.which(program) is None:
            raise ImageError(
                f"no registry answers, and {program!r} is missing to make the base from packages",
                hint=f"as root: apt-get install {package}",
            )
    return "mmdebstrap"


def _mmdebstrap_arguments(packages: tuple[str, ...], *, suite: str) -> list[str]:
    return [
        f"--mode={'unshare' if os.geteuid() else 'root'}",
        "--variant=minbase",
        "--format=tar",
        f"--include={','.join(packages)}",
        *([f"--keyring={_KEYRING}"] if _KEYRING.exists() else ()),
        *(f"--dpkgopt={rule}" for rule in _LEAN),
        suite,
        "-",  # the tar to stdout
    ]


def _host_suite() -> str:
    """The host's own release where the toolbox runs on it, so that its mirrors serve; else a fixed one."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return FALLBACK_SUITE
    codename = release.get("VERSION_CODENAME", "")
    return codename if release.get("ID") == "debian" and codename in _SUITES else FALLBACK_SUITE


def _host_sources(suite: str) -> str:
    """The host's own apt sources for `suite`, so that a house mirror is used; empty when it has none."""
    if shutil.which("apt-get") is None:
        return ""
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"],
        capture_output=True, text=True, timeout=30, check=False,
    ).stdout  # fmt: skip
    wanted = {suite, f"{suite}-updates", f"{suite}-security"}
    rows = (line.split() for line in targets.splitlines())
    lines = {f"deb {row[0]} {row[1]} main" for row in rows if len(row) == 3 and row[1] in wanted and row[2] == "main"}
    return "".join(f"{line}\n" for line in sorted(lines)) if any(f" {suite} main" in line for line in lines) else ""


def _report_lines(stream: IO[bytes], last: deque[str], on_progress: Progress) -> None:
    for raw in stream:
        line = visible(raw.strip(), limit=300)
        last.append(line)
        if line.startswith(_SHOWN_LINES):
            on_progress(line.removeprefix("I: "))


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends mmdebstrap and what it started, when we leave early; it removes its own files on SIGTERM."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def _failure_hint(cause: str, suite: str) -> str | None:
    if "not signed" in cause:
        return f"this host's debian-archive-keyring does not know {suite}; use a registry, or --base with a local image"
    if os.geteuid() != 0:
        return "as root: `corral image build`; unprivileged user namespaces may be forbidden on this host"
    return None
