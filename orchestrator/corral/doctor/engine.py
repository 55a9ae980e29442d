"""What the engine's facts mean for corral. Pure: facts in, checks out."""

from __future__ import annotations

from corral.doctor.check import Check, Status
from corral.errors import SandboxError
from corral.sandbox.image import ImageReport
from corral.sandbox.probe import EngineFacts, EngineProblem, NoEngine
from corral.sandbox.reach import USE_DOCKER
from corral.sandbox.remap import SUBIDS, read_remap
from corral.schema.visible import visible

MIN_API = (1, 41)
"""Engine 20.10: the oldest with cgroup v2 and the mount options the workspace needs."""

_HINTS = {
    EngineProblem.ABSENT: "as root: apt-get install docker.io, or `./setup`; DOCKER_HOST names another engine",
    EngineProblem.REFUSED: "as root: usermod -aG docker YOU, then log in again; that group is as good as root",
    EngineProblem.SILENT: "the engine hangs; as root: systemctl restart docker",
    EngineProblem.OTHER: "see what `docker info` says",
}


def judge_no_engine(found: NoEngine) -> tuple[Check, ...]:
    hint = found.hint or _HINTS[found.problem]
    return (Check("engine", Status.FAIL, f"{found.problem}: {visible(found.detail, limit=200)}", hint),)


def judge_engine(
    facts: EngineFacts, image: ImageReport | None, *, runtime: str, start: float | str | None = None
) -> tuple[Check, ...]:
    """Every check that the engine's own words decide. `start`: of a container of another runtime than the engine's own
    the seconds it took, or why there is none."""
    return (
        _judge_version(facts),
        *(Check("way", Status.WARN, warning, "use TLS or SSH") for warning in facts.warnings),
        _judge_image(image),
        _judge_cgroup(facts),
        _judge_users(facts),
        _judge_seccomp(facts),
        _judge_runtime(facts, runtime, start),
        _judge_leftovers(facts),
    )


def _judge_version(facts: EngineFacts) -> Check:
    detail = f"Docker {facts.version}, API {facts.api_version}, {'local' if facts.is_local else facts.address}"
    if facts.is_podman:
        return Check("engine", Status.FAIL, f"Podman {facts.version}, at {facts.address}", USE_DOCKER)
    numbers = tuple(int(part) for part in facts.api_version.split(".") if part.isdecimal())
    if numbers >= MIN_API:
        return Check("engine", Status.OK, detail)
    return Check("engine", Status.FAIL, detail, "corral needs Docker Engine 20.10 (API 1.41) or newer")


def _judge_image(image: ImageReport | None) -> Check:
    if image is None:
        return Check("image", Status.FAIL, "the sandbox image is missing", "corral image build")
    detail = f"{image.tag}, {image.size_bytes >> 20} MiB, base from {image.source or 'elsewhere'}"
    if image.current:
        return Check("image", Status.OK, detail)
    return Check("image", Status.WARN, f"{detail}, not of this version of corral", "corral image build")


def _judge_cgroup(facts: EngineFacts) -> Check:
    detail = f"layout v{facts.cgroup_version or '1'}"
    if facts.missing_limits:
        missing = ", ".join(facts.missing_limits)
        return Check("cgroup", Status.WARN, f"{detail}; not limited here: {missing}", "the host's kernel decides that")
    return Check("cgroup", Status.OK, detail)


def _judge_users(facts: EngineFacts) -> Check:
    if "userns" in facts.security:
        try:
            remap = read_remap(facts.root_dir, kernel=facts.kernel, subids=SUBIDS if facts.is_local else None)
        except SandboxError as error:
            return Check("users", Status.FAIL, error.message, error.hint)
        return Check("users", Status.OK, f"{remap.describe()}: boxes use it")
    if "rootless" in facts.security:
        hint = "the workspace is copied in where overlay cannot be mounted"
        return Check("users", Status.WARN, "the engine runs without root", hint)
    return Check("users", Status.OK, "container users are the host's users")


def _judge_seccomp(facts: EngineFacts) -> Check:
    if "seccomp" in facts.security:
        return Check("seccomp", Status.OK, "the engine applies our own profile")
    hint = "corral refuses to run a box without it; use an engine and a kernel with seccomp"
    return Check("seccomp", Status.FAIL, "the engine cannot filter system calls", hint)


def _judge_runtime(facts: EngineFacts, runtime: str, start: float | str | None) -> Check:
    detail = f"{runtime}; the engine has {', '.join(facts.runtimes)}"
    if runtime not in facts.runtimes:
        return Check("runtime", Status.FAIL, detail, f"install {runtime!r} and name it in the engine's daemon.json")
    if isinstance(start, str):
        hint = f"{visible(start, limit=300)}; or leave `runtime` out of the settings"
        return Check("runtime", Status.FAIL, f"{runtime} starts no container", hint)
    began = "" if start is None else f", and starts a container of {runtime} in {start:.1f} s"
    return Check("runtime", Status.OK, detail + began)


def _judge_leftovers(facts: EngineFacts) -> Check:
    count = facts.leftover_containers + facts.leftover_volumes
    if not count:
        return Check("leftovers", Status.OK, "none")
    detail = f"{facts.leftover_containers} containers and {facts.leftover_volumes} volumes of runs that have ended"
    return Check("leftovers", Status.WARN, detail, "corral gc")
