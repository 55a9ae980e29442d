"""The doctor's judgement on a box: an honest one passes, and each thing that is wrong is named."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from corral.doctor import Check, Status
from corral.doctor.box import InsideFacts, judge_engine_view, judge_inside, judge_toolbox, show_score
from corral.sandbox.base import MAPPED, BoxInfo
from corral.sandbox.spec import WorkspaceMode

INFO = BoxInfo("id", "run", "corral-sandbox", "sha256:1", "runc", WorkspaceMode.OVERLAY, "", "/workspace", 7, 7)
INSIDE: dict[str, Any] = {
    "user_ids": [1879048192],
    "user_map": [0, 0, 4294967295],
    "status": {
        **{f"Cap{kind}": "0" * 16 for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")},
        "NoNewPrivs": "1",
        "Seccomp": "2",
    },
    "limits": {"open_files": 4096, "file_bytes": 1 << 30, "core": 0, "locked": 65536, "queues": 0},
    "descriptors": [],
    "host_name": "box",
    "calls": {"bpf": "EPERM", "clone3": "ENOSYS", "ptrace": "EPERM"},
    "sockets": {"packet": "EPERM"},
    "memory_files": [["/tmp", "rw,nosuid,nodev,size=524288k,nr_inodes=65536"], ["/dev", "rw,nosuid,mode=755"]],
    "told": [],
    "writable": [],
    "set_id": [],
    "devices": [],
    "engine": [],
    "interfaces": ["lo"],
    "connections": {"198.51.100.7": "ENETUNREACH"},
    "toolbox": {"signal": "EPERM", "memory": "EACCES"},
}
SEEN: dict[str, Any] = {
    "Config": {"Tty": False},
    "Mounts": [
        {"Type": "volume", "Destination": "/workspace", "RW": True},
        {"Type": "bind", "Destination": "/etc/hosts", "RW": False},
    ],
    "HostConfig": {
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": ["KILL", "SETGID", "SETPCAP", "SETUID"],
        "SecurityOpt": ["no-new-privileges", "seccomp={ours}"],
        "ReadonlyRootfs": True,
        "NetworkMode": "none",
        "IpcMode": "private",
        "PidMode": "",
        "UTSMode": "",
        "CgroupnsMode": "private",
        "Memory": 1 << 32,
        "MemorySwap": 1 << 32,
        "PidsLimit": 512,
        "NanoCpus": 2_000_000_000,
        "Devices": [],
        "AutoRemove": True,
        "LogConfig": {"Type": "none"},
    },
}


def inside(*, debug: bool = False, **changes: Any) -> dict[str, Status]:
    facts = InsideFacts.model_validate({**copy.deepcopy(INSIDE), **changes})
    return named(judge_inside(facts, INFO, host_name="alice-laptop", debug=debug))


def outside(part: str = "HostConfig", **changes: Any) -> dict[str, Status]:
    seen = copy.deepcopy(SEEN)
    seen[part] = {**seen[part], **changes} if isinstance(seen[part], dict) else changes["mounts"]
    return named(judge_engine_view(seen, seccomp="{ours}", default_profile="{ours}"))


def named(checks: tuple[Check, ...]) -> dict[str, Status]:
    return {check.name: check.status for check in checks if check.status is not Status.OK}


def test_an_honest_box_passes() -> None:
    assert (inside(), outside(), named(judge_toolbox(INFO))) == ({}, {}, {})


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"user_ids": [0, 7]}, "user"),
        ({"status": {**INSIDE["status"], "CapBnd": "00000000a80425fb"}}, "capabilities"),
        ({"status": {**INSIDE["status"], "NoNewPrivs": "0"}}, "new privileges"),
        ({"status": {**INSIDE["status"], "Seccomp": "0"}}, "filter"),
        ({"calls": {**INSIDE["calls"], "bpf": "EINVAL"}}, "system calls"),
        ({"calls": {**INSIDE["calls"], "mount": ""}}, "system calls"),
        ({"sockets": {"packet": ""}}, "sockets"),
        ({"writable": ["/etc"]}, "system files"),
        ({"told": ["/proc/kallsyms"]}, "kernel files"),
        ({"memory_files": [["/tmp", "rw,nosuid,nodev,size=1k"]]}, "memory files"),
        ({"memory_files": [["/tmp", "rw,nodev,size=1k,nr_inodes=5"]]}, "memory files"),
        ({"set_id": ["/usr/bin/su"]}, "set-id"),
        ({"devices": ["/dev/sda"]}, "devices"),
        ({"engine": ["/var/run/docker.sock"]}, "engine"),
        ({"descriptors": ["7"]}, "descriptors"),
        ({"host_name": "alice-laptop"}, "host name"),
        ({"interfaces": ["eth0", "lo"]}, "interfaces"),
        ({"connections": {"198.51.100.7": ""}}, "connections"),
        ({"connections": {"198.51.100.7": "ETIMEDOUT"}}, "connections"),
        ({"toolbox": {"memory": ""}}, "toolbox"),
        ({"limits": {**INSIDE["limits"], "core": -1}}, "limits"),
        ({"limits": {**INSIDE["limits"], "open_files": 1 << 20}}, "limits"),
        ({"limits": {}}, "limits"),
    ],
)
def test_each_hole_seen_from_inside_is_named(changes: dict[str, Any], name: str) -> None:
    assert inside(**changes) == {name: Status.FAIL}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"Privileged": True}, "privileged"),
        ({"CapAdd": ["KILL", "SETGID", "SETPCAP", "SETUID", "SYS_ADMIN"]}, "first process"),
        ({"CapDrop": None}, "first process"),
        ({"SecurityOpt": ["seccomp={ours}"]}, "no-new-privileges"),
        ({"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"]}, "profile"),
        ({"ReadonlyRootfs": False}, "root"),
        ({"NetworkMode": "bridge"}, "namespaces"),
        ({"PidMode": "host"}, "namespaces"),
        ({"IpcMode": "shareable"}, "namespaces"),
        ({"PidsLimit": 0}, "ceilings"),
        ({"MemorySwap": -1}, "swap"),
        ({"Devices": [{"PathOnHost": "/dev/kvm"}]}, "host devices"),
        ({"AutoRemove": False}, "removal"),
        ({"LogConfig": {"Type": "json-file"}}, "log"),
    ],
)
def test_each_hole_seen_from_outside_is_named(changes: dict[str, Any], name: str) -> None:
    assert outside(**changes) == {name: Status.FAIL}


@pytest.mark.parametrize(
    "mount", [{"Destination": "/data", "RW": False}, {"Destination": "/etc/hosts", "RW": True}], ids=["path", "hosts"]
)
def test_a_directory_of_the_host_is_named(mount: dict[str, Any]) -> None:
    assert outside("Mounts", mounts=[{"Type": "bind", **mount}]) == {"mounts": Status.FAIL}


def test_nothing_from_the_engine_is_no_pass() -> None:
    names = named(judge_engine_view({}, seccomp="{ours}", default_profile="{ours}"))
    assert {"first process", "no-new-privileges", "profile", "root", "namespaces", "ceilings", "swap"} <= names.keys()


def test_debuggers_are_a_warning_and_their_calls_are_expected() -> None:
    checks = judge_engine_view(SEEN, seccomp="{ours}", default_profile="{other}")
    assert named(checks) == {"profile": Status.WARN}
    assert inside(debug=True, calls={"bpf": "EPERM", "ptrace": "ESRCH"}) == {}
    assert inside(debug=False, calls={"bpf": "EPERM", "ptrace": "ESRCH"}) == {"system calls": Status.FAIL}


@pytest.mark.parametrize(
    ("user_map", "status"),
    [([0, 100000, 65536], Status.OK), ([0, 0, 4294967295], Status.FAIL), ([], Status.FAIL)],
)
def test_mapped_users_are_checked_from_inside(user_map: list[int], status: Status) -> None:
    facts = InsideFacts.model_validate({**copy.deepcopy(INSIDE), "user_map": user_map})
    info = replace(INFO, facts={MAPPED: "100000"})
    found = {check.name: check.status for check in judge_inside(facts, info, host_name="", debug=False)}
    assert found["mapped users"] is status


def test_a_missing_second_layer_is_a_warning() -> None:
    bare = replace(INFO, warnings=("no second layer around files: this kernel has no Landlock",))
    assert named(judge_toolbox(bare)) == {"second layer": Status.WARN}


OWN = replace(INFO, runtime="runsc")
UNFILTERED: dict[str, Any] = {
    "status": {**INSIDE["status"], "CapAmb": "?", "NoNewPrivs": "?", "Seccomp": "0"},
    "calls": {**INSIDE["calls"], "ptrace": "ESRCH"},
    "sockets": {"packet": ""},
    "told": ["/proc/cmdline"],
    "memory_files": [["/tmp", "rw,size=1k"]],
    "toolbox": {"signal": "EPERM", "environment": "", "priority": ""},
}


def own_kernel(**changes: Any) -> dict[str, Status]:
    facts = InsideFacts.model_validate({**copy.deepcopy(INSIDE), **changes})
    return named(judge_inside(facts, OWN, host_name="alice-laptop", debug=False))


def test_what_a_kernel_of_its_own_answers_is_a_warning() -> None:
    expected = ("kernel", "new privileges", "filter", "system calls", "sockets", "kernel files", "memory files")
    assert own_kernel(**UNFILTERED) == dict.fromkeys((*expected, "toolbox"), Status.WARN)
    assert named(judge_toolbox(OWN)) == {"second layer": Status.WARN}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"user_ids": [0]}, "user"),
        ({"toolbox": {"environment": "", "memory": ""}}, "toolbox"),
        ({"status": {**INSIDE["status"], "CapEff": "0000000000000001"}}, "capabilities"),
        ({"connections": {"198.51.100.7": ""}}, "connections"),
        ({"engine": ["/var/run/docker.sock"]}, "engine"),
        ({"set_id": ["/usr/bin/su"]}, "set-id"),
    ],
)
def test_a_hole_is_one_under_any_kernel(changes: dict[str, Any], name: str) -> None:
    assert own_kernel(**changes) == {"kernel": Status.WARN, name: Status.FAIL}


def test_the_score_counts_passes_only() -> None:
    checks = [Check("a", Status.OK, ""), Check("b", Status.WARN, ""), Check("c", Status.FAIL, "")]
    assert show_score(checks) == "1 of 3"


@pytest.mark.parametrize(
    "changes", [{"more": 1}, {"user_ids": ["0"]}, {"told": ["x" * 600]}, {"calls": {str(n): "" for n in range(300)}}]
)
def test_an_answer_out_of_bounds_is_no_answer(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        InsideFacts.model_validate({**INSIDE, **changes})


def test_what_the_box_says_cannot_steer_a_terminal() -> None:
    facts = InsideFacts.model_validate({**INSIDE, "set_id": ["/usr/bin/\x1b[2Jx"]})
    told = [check.detail for check in judge_inside(facts, INFO, host_name="h", debug=False) if check.name == "set-id"]
    assert len(told) == 1 and "\x1b" not in told[0]
