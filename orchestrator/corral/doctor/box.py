"""What a box's own words and the engine's mean. Pure: facts in, checks out, each with what is and what it should be.

The words come from the box: they are validated, and a check that they pass is one that an honest box passes. What the
engine says stands beside, and neither alone is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from corral.doctor.check import Check, Status
from corral.doctor.kernel import soften
from corral.sandbox.ability import LANDLOCK, has_own_kernel
from corral.sandbox.base import MAPPED, BoxInfo
from corral.sandbox.pool.yard import PLACE as YARDS
from corral.sandbox.spec import Limits
from corral.schema.visible import visible

_Text = Annotated[str, Field(max_length=512)]
_Texts = Annotated[list[_Text], Field(max_length=1000)]
_Answers = Annotated[dict[_Text, _Text], Field(max_length=200)]
_REFUSED = ("EPERM", "EACCES", "ENOSYS")
_UNREACHED = ("ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "EHOSTUNREACH")
_FOUR = {"KILL", "SETGID", "SETPCAP", "SETUID"}
_PRIVATE = {
    "NetworkMode": ("none",),
    "IpcMode": ("private", "none"),
    "PidMode": ("",),
    "UTSMode": ("",),
    "CgroupnsMode": ("private", ""),
}
_SHOWN = 4


class InsideFacts(BaseModel):
    """What doctor/inside.py prints."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    user_ids: Annotated[list[int], Field(max_length=100)]
    user_map: Annotated[list[int], Field(max_length=1020)]
    status: _Answers
    limits: Annotated[dict[_Text, int], Field(max_length=20)]
    descriptors: _Texts
    host_name: _Text
    calls: _Answers
    sockets: _Answers
    memory_files: Annotated[list[_Texts], Field(max_length=1000)]
    told: _Texts
    writable: _Texts
    set_id: _Texts
    devices: _Texts
    engine: _Texts
    interfaces: _Texts
    connections: _Answers
    toolbox: _Answers


def judge_inside(facts: InsideFacts, info: BoxInfo, *, host_name: str, debug: bool) -> tuple[Check, ...]:
    """What the untrusted user sees."""
    status = facts.status
    open_calls = _find_open(facts.calls) - ({"ptrace", "process_vm_readv"} if debug else set())
    is_own = has_own_kernel(info)  # which may not name the sets that it does not have
    empty = "0?" if is_own else "0"
    capabilities = {name for name, bits in status.items() if name.startswith("Cap") and bits.strip(empty)}
    toolbox = _find_open(facts.toolbox)
    checks = (
        _require(
            "user", 0 not in facts.user_ids, f"commands run as user {max(facts.user_ids, default=0)}, never as root"
        ),
        *_judge_mapping(facts.user_map, info),
        _forbid("capabilities", capabilities, "commands have no capability, and can gain none"),
        _require("new privileges", status.get("NoNewPrivs") == "1", "no program gives more rights (no_new_privs)"),
        _require("filter", status.get("Seccomp") == "2", "system calls are filtered"),
        _forbid("system calls", open_calls, f"{len(facts.calls)} dangerous system calls are refused"),
        _forbid("sockets", _find_open(facts.sockets), f"{len(facts.sockets)} kinds of sockets are refused"),
        _forbid("system files", facts.writable, "nothing of the system and the kernel is writable"),
        _forbid("kernel files", facts.told, "what the kernel tells about the host is hidden"),
        _forbid(
            "memory files", _find_unlimited(facts.memory_files), "every memory file system has a size and a file limit"
        ),
        _forbid("set-id", facts.set_id, "no program runs as another user"),
        _forbid("devices", facts.devices, "there is no disk device"),
        _forbid("engine", facts.engine, "the engine's socket is out of sight"),
        _forbid("descriptors", facts.descriptors, "commands inherit no open file"),
        _require(
            "host name", facts.host_name != host_name or not host_name, f"the box calls itself {facts.host_name!r}"
        ),
        _forbid("interfaces", set(facts.interfaces) - {"lo"}, "there is no network but loopback"),
        _forbid("connections", _find_reached(facts.connections), "nothing outside can be reached"),
        _forbid("toolbox", toolbox, "the toolbox can be neither read, steered nor ended"),
        _judge_limits(facts.limits, info.limits),
    )
    return tuple(soften(checks, toolbox=toolbox)) if is_own else checks


def _judge_mapping(user_map: list[int], info: BoxInfo) -> Iterator[Check]:
    """Only where the engine maps ids: that this box has them."""
    first = info.facts.get(MAPPED)
    if first is not None:
        holds = user_map[:1] == [0] and user_map[1:2] == [int(first)]
        yield _require("mapped users", holds, f"root of the box is user {first} of the host (userns-remap)")


def judge_toolbox(info: BoxInfo) -> tuple[Check, ...]:
    """What the toolbox has said at its start."""
    missing = [warning for warning in info.warnings if "Landlock" in warning]
    if has_own_kernel(info) and LANDLOCK not in info.capabilities:
        missing = ["no second layer around files: the runtime's kernel has no Landlock"]
    layer = Check("second layer", Status.OK, "Landlock holds commands to workspace, home and temporary files")
    if missing:
        layer = Check("second layer", Status.WARN, missing[0], "a newer kernel has it; the first layer stands alone")
    overlay = Check("workspace", Status.OK, "the original is a read-only layer below the box's changes")
    if info.mode_reason:
        overlay = Check("workspace", Status.OK, f"the box works on a copy: {visible(info.mode_reason, limit=200)}")
    return layer, overlay


def judge_engine_view(seen: Mapping[str, Any], *, seccomp: str, default_profile: str) -> tuple[Check, ...]:
    """What the engine says it has made. `seccomp` is the profile that was asked for."""
    host, config = _part(seen, "HostConfig"), _part(seen, "Config")
    options = [str(option) for option in host.get("SecurityOpt") or ()]
    shared = [name for name, private in _PRIVATE.items() if str(host.get(name) or "") not in private]
    unlimited = [name for name in ("Memory", "PidsLimit", "NanoCpus") if not host.get(name)]
    profile = Check("profile", Status.OK, "the filter is corral's own")
    if f"seccomp={seccomp}" not in options:
        profile = Check("profile", Status.FAIL, "the engine does not apply corral's own filter", "corral needs it")
    elif seccomp != default_profile:
        profile = Check("profile", Status.WARN, "debuggers are allowed", '`seccomp = "default"` in the settings')
    return (
        _require("privileged", not host.get("Privileged"), "the container is not privileged"),
        _require(
            "first process",
            set(host.get("CapAdd") or ()) == _FOUR and "ALL" in (host.get("CapDrop") or ()),
            f"the toolbox has four capabilities: {', '.join(sorted(_FOUR))}",
        ),
        _require("no-new-privileges", "no-new-privileges" in options, "the engine forbids new privileges, too"),
        profile,
        _require("root", host.get("ReadonlyRootfs") is True, "the root file system is read-only"),
        _forbid("namespaces", shared, "nothing is shared with the host or another container"),
        _forbid("ceilings", unlimited, "memory, processes and processors have a ceiling"),
        _require(
            "swap", bool(host.get("Memory")) and host.get("MemorySwap") == host.get("Memory"), "memory is not swapped"
        ),
        _forbid("mounts", _find_foreign_mounts(seen), "no directory of the host but the workspace's view"),
        _forbid("host devices", host.get("Devices") or (), "no device of the host"),
        _require("removal", host.get("AutoRemove") is True, "the engine removes the box when it ends"),
        _require("log", _part(host, "LogConfig").get("Type") == "none", "the engine keeps no output"),
        _require("terminal", not config.get("Tty"), "the channel is not a terminal"),
    )


def show_score(checks: Iterable[Check]) -> str:
    """`33 of 34`: a warning is no pass."""
    statuses = [check.status for check in checks]
    return f"{statuses.count(Status.OK)} of {len(statuses)}"


def _part(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return found if isinstance(found, Mapping) else {}


def _require(name: str, holds: bool, promise: str) -> Check:
    if holds:
        return Check(name, Status.OK, visible(promise, limit=200))
    return Check(name, Status.FAIL, f"not so: {visible(promise, limit=200)}", _HINT)


def _forbid(name: str, found: Iterable[object], promise: str) -> Check:
    wrong = [visible(str(one), limit=80) for one in sorted(map(str, found))]
    if not wrong:
        return Check(name, Status.OK, promise)
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return Check(name, Status.FAIL, f"not so: {promise}: {', '.join(wrong[:_SHOWN])}{more}", _HINT)


_HINT = "the engine, its runtime or this image undoes it; do not run untrusted code here before it is found"


def _find_open(answers: Mapping[str, str]) -> set[str]:
    return {name for name, answer in answers.items() if answer not in _REFUSED}


def _find_reached(answers: Mapping[str, str]) -> set[str]:
    return {name for name, answer in answers.items() if answer not in _UNREACHED}


def _find_unlimited(mounts: Iterable[list[str]]) -> list[str]:
    """Writable memory file systems without a ceiling; /dev itself belongs to root and is small."""
    found = []
    for mount in mounts:
        place, options = (*mount, "", "")[:2]
        words = options.split(",")
        if "rw" not in words or place == "/dev":
            continue
        has_limits = all(any(word.startswith(limit) for word in words) for limit in ("size=", "nr_inodes="))
        if not has_limits or not {"nosuid", "nodev"} <= set(words):
            found.append(place)
    return found


def _find_foreign_mounts(seen: Mapping[str, Any]) -> list[str]:
    """Directories of the host. The one file that names loopback is corral's own, and so is the empty directory that a
    pool mounts the workspace's view on."""
    return [
        str(mount.get("Destination"))
        for mount in seen.get("Mounts") or ()
        if mount.get("Type") == "bind" and not _is_own(mount)
    ]


def _is_own(mount: Mapping[str, Any]) -> bool:
    if mount.get("Destination") == "/etc/hosts":
        return not mount.get("RW")
    return Path(str(mount.get("Source"))).parent.parent.parent == YARDS and mount.get("Propagation") == "rslave"


def _judge_limits(found: Mapping[str, int], limits: Limits) -> Check:
    most: dict[str, Callable[[int], bool]] = {
        "open_files": lambda value: 0 < value <= limits.open_files,
        "file_bytes": lambda value: 0 < value <= limits.file_bytes,
        "core": lambda value: value == 0,
        "locked": lambda value: 0 <= value <= 64 << 10,
        "queues": lambda value: value == 0,
    }
    wrong = [name for name, holds in most.items() if not holds(found.get(name, -1))]
    return _forbid("limits", wrong, "open files, file size, locked memory, queues and core dumps are limited")
