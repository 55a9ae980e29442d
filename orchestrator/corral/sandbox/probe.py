"""What the engine says about itself, as plain facts: `corral doctor` judges them, nothing here does."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import docker
from docker.errors import DockerException

from corral.errors import EngineUnavailable
from corral.sandbox.image import choose_address, open_client
from corral.sandbox.labels import MARK, RUN, labels, owner_is_alive
from corral.sandbox.reach import Address, explain
from corral.sandbox.runtime import START_LIMIT_S

_REMOVAL_S = 5
T = TypeVar("T")


class EngineProblem(StrEnum):
    """Why no engine could be asked."""

    ABSENT = "absent"  # no socket, or nobody listens
    REFUSED = "refused"  # the socket is there and we may not use it
    SILENT = "silent"  # connected, no answer in time
    OTHER = "other"


@dataclass(frozen=True)
class EngineFacts:
    """One engine, as it describes itself."""

    address: str
    version: str
    api_version: str
    kernel: str
    cgroup_version: str
    storage_driver: str
    root_dir: str
    security: tuple[str, ...]
    """`seccomp`, `userns`, `rootless`, `apparmor`, ..."""
    runtimes: tuple[str, ...]
    missing_limits: tuple[str, ...]
    """Limits the engine cannot set on this host: memory, swap, pids, cpu."""
    leftover_containers: int
    leftover_volumes: int
    """What corral made and whose owner has gone."""
    is_local: bool = True
    is_podman: bool = False
    warnings: tuple[str, ...] = ()
    """Of the way to it."""


@dataclass(frozen=True)
class NoEngine:
    """There is no engine to use; `problem` says why, `detail` in the words of the system."""

    problem: EngineProblem
    detail: str
    hint: str | None = None
    """What to do, where the problem alone does not say it."""


def probe_engine(engine_url: str | None = None, *, timeout_s: float = 10) -> EngineFacts | NoEngine:
    """Asks the engine of the environment, or that of `engine_url`. Never raises for want of an engine."""
    try:
        address = choose_address(engine_url)
    except EngineUnavailable as error:
        return NoEngine(EngineProblem.OTHER, error.message, error.hint)
    try:
        with contextlib.closing(open_client(engine_url, timeout_s=timeout_s)) as engine:
            return _collect(engine, address)
    except EngineUnavailable as error:
        return NoEngine(EngineProblem.OTHER, error.message, error.hint)
    except (DockerException, OSError) as error:
        if not address.is_local:
            told = explain("answer", error, address)
            return NoEngine(_classify(error), told.message, told.hint)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return NoEngine(
            _classify(error), f"{engine_url or os.environ.get('DOCKER_HOST') or 'the local socket'}: {reason}"
        )


def _collect(engine: docker.DockerClient, address: Address) -> EngineFacts:
    info: dict[str, Any] = engine.info()
    version: dict[str, Any] = engine.version()
    limits = {"memory": "MemoryLimit", "swap": "SwapLimit", "pids": "PidsLimit", "cpu": "CpuCfsQuota"}
    containers = engine.api.containers(all=True, filters={"label": f"{MARK}=1"})
    volumes = engine.api.volumes(filters={"label": f"{MARK}=1"})["Volumes"] or []
    return EngineFacts(
        address=address.url,
        is_local=address.is_local,
        is_podman=any("Podman" in str(part.get("Name")) for part in version.get("Components") or ()),
        warnings=address.warnings,
        version=str(version.get("Version", "")),
        api_version=str(version.get("ApiVersion", "")),
        kernel=str(info.get("KernelVersion", "")),
        cgroup_version=str(info.get("CgroupVersion", "")),
        storage_driver=str(info.get("Driver", "")),
        root_dir=str(info.get("DockerRootDir", "")),
        security=tuple(_security_name(option) for option in info.get("SecurityOptions") or ()),
        runtimes=tuple(sorted(info.get("Runtimes") or {})),
        missing_limits=tuple(name for name, key in limits.items() if not info.get(key, True)),
        leftover_containers=_count_orphans(containers),
        leftover_volumes=_count_orphans(volumes),
    )


def time_runtime(runtime: str, image_id: str, engine_url: str | None = None) -> float | str:
    """Seconds that a container of this runtime takes to start, or why none does. It is removed."""
    begun = time.monotonic()
    try:
        with contextlib.closing(open_client(engine_url, timeout_s=START_LIMIT_S)) as engine:
            made = engine.containers.create(
                image_id,
                entrypoint=["/bin/true"],
                runtime=runtime,
                network_mode="none",
                labels=labels(f"doctor-{os.getpid()}", "probe"),
            )
            try:
                made.start()
                return time.monotonic() - begun
            finally:
                _remove(engine_url, str(made.id))
    except (DockerException, OSError) as error:  # a time limit comes as one of the system's
        if time.monotonic() - begun > START_LIMIT_S:
            return f"it did not start within {START_LIMIT_S:g} s"
        return str(getattr(error, "explanation", None) or error)


def _remove(engine_url: str | None, container_id: str) -> None:
    """Briefly tried: one that hangs in its start is left to gc."""
    with (
        contextlib.suppress(DockerException, OSError),
        contextlib.closing(open_client(engine_url, timeout_s=_REMOVAL_S)) as engine,
    ):
        engine.api.remove_container(container_id, force=True, v=True)


def inspect_container(container_id: str) -> dict[str, Any]:
    """What the engine says about one container, as it says it. Raises EngineUnavailable."""
    return _ask_engine(lambda engine: dict(engine.api.inspect_container(container_id)))


def find_leftovers(run_id: str) -> list[str]:
    """Containers and volumes of a run that are still there. Raises EngineUnavailable."""
    label = {"label": f"{RUN}={run_id}"}

    def look(engine: docker.DockerClient) -> list[str]:
        containers = [f"container {found['Id'][:12]}" for found in engine.api.containers(all=True, filters=label)]
        return containers + [f"volume {found['Name']}" for found in engine.api.volumes(filters=label)["Volumes"] or []]

    return _ask_engine(look)


def _ask_engine(question: Callable[[docker.DockerClient], T]) -> T:
    try:
        with contextlib.closing(open_client(None, timeout_s=10)) as engine:
            return question(engine)
    except (DockerException, OSError) as error:
        raise EngineUnavailable(f"the engine does not answer: {error}") from error


def _security_name(option: str) -> str:
    """`seccomp` of `name=seccomp,profile=default`."""
    return option.split(",")[0].removeprefix("name=")


def _count_orphans(objects: Iterable[dict[str, Any]]) -> int:
    return sum(1 for found in objects if not owner_is_alive(found.get("Labels") or {}))


def _classify(error: Exception) -> EngineProblem:
    """By the system's own error at the bottom of the chain: the libraries wrap it several times."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, PermissionError):
            return EngineProblem.REFUSED
        if isinstance(seen, FileNotFoundError | ConnectionRefusedError):
            return EngineProblem.ABSENT
        if isinstance(seen, TimeoutError):
            return EngineProblem.SILENT
        seen = seen.__cause__ or seen.__context__
    return EngineProblem.OTHER
