"""The seccomp profile: generated, current, and never wider than the table says."""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType
from typing import Any

import pytest

from corral.resource import find_data

FOLDER = find_data("policies") / "seccomp"
NEVER = """io_uring_setup io_uring_enter io_uring_register userfaultfd bpf perf_event_open add_key request_key keyctl
memfd_secret process_vm_readv process_vm_writev process_madvise ptrace pidfd_getfd kcmp open_by_handle_at
name_to_handle_at mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr
unshare setns clone3 init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff iopl
ioperm syslog acct quotactl fanotify_init clock_settime settimeofday sethostname modify_ldt vmsplice mbind""".split()  # noqa: SIM905  # a list to read


def load_generator() -> ModuleType:
    return load_script("generate")


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(table: str, *, profile: str = "default") -> dict[str, Any]:
    return dict(load_generator().build_profile(table, profile=profile))


def rules(profile: dict[str, Any], action: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for rule in profile["syscalls"]:
        for name in rule["names"] if rule["action"] == action else ():
            found.setdefault(name, []).append(rule["args"])
    return found


PROFILE = json.loads((FOLDER / "default.json").read_text())


@pytest.mark.parametrize("profile", ["default", "debug"])
def test_is_what_the_table_says(profile: str) -> None:
    assert (FOLDER / f"{profile}.json").read_text() == load_generator().render(profile)


def test_the_debug_profile_allows_debuggers_and_nothing_else() -> None:
    debug = json.loads((FOLDER / "debug.json").read_text())
    more = rules(debug, "SCMP_ACT_ALLOW").keys() - rules(PROFILE, "SCMP_ACT_ALLOW").keys()
    assert more == {"ptrace", "process_vm_readv", "process_vm_writev"}
    assert [r for r in debug["syscalls"] if not more.intersection(r["names"])] == [
        r for r in PROFILE["syscalls"] if not more.intersection(r["names"])
    ]


def test_denies_by_default_and_knows_no_32_bit_architecture() -> None:
    assert PROFILE["defaultAction"] == "SCMP_ACT_ERRNO"
    assert [(a["architecture"], a["subArchitectures"]) for a in PROFILE["archMap"]] == [
        ("SCMP_ARCH_X86_64", []),
        ("SCMP_ARCH_AARCH64", []),
    ]
    assert {rule["action"] for rule in PROFILE["syscalls"]} == {"SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"}


@pytest.mark.parametrize("name", NEVER)
def test_never_allows(name: str) -> None:
    assert name not in rules(PROFILE, "SCMP_ACT_ALLOW")
    assert name in rules(PROFILE, "SCMP_ACT_ERRNO")


def test_conditional_calls_are_never_allowed_outright() -> None:
    allowed = rules(PROFILE, "SCMP_ACT_ALLOW")
    conditional = {name: conditions for name, conditions in allowed.items() if any(conditions)}
    assert {name: len(conditions) for name, conditions in conditional.items()} == {
        "clone": 1,
        "ioctl": 38,
        "mknod": 4,
        "mknodat": 4,
        "personality": 3,
        "socket": 10,
        "socketpair": 1,
    }
    assert all(all(conditions) for conditions in conditional.values())
    assert {a["op"] for conditions in conditional.values() for args in conditions for a in args} == {
        "SCMP_CMP_MASKED_EQ"
    }


@pytest.mark.parametrize(
    "table",
    [
        "allow read",  # no reason
        "permit read  # x",
        "allow  # x",
        "allow read read  # x",
        "allow read  # x\nallow read  # y",
        "allow read  # x\ndeny read  # y",
        "allow read  # x\nallow read if arg0 == 1  # y",
        "allow read if arg9 == 1  # x",
        "allow read if arg0 > 1  # x",
        "allow read unless arg0 == 1 or arg1 == 2  # x",
        "allow read unless arg0 & 3 == 1  # x",
        "debug allow read  # x",
    ],
)
def test_refuses_an_unclear_table(table: str) -> None:
    with pytest.raises(ValueError, match=r"line \d"):
        build(table)


def test_two_conditions_are_joined_by_or() -> None:
    table = "allow socket if arg0 == 1  # a\nallow socket if arg0 == 16 and arg2 == 0  # b"
    assert [len(args) for args in rules(build(table), "SCMP_ACT_ALLOW")["socket"]] == [1, 2]


def test_everything_but_the_exceptions_is_allowed() -> None:
    """Also with other bits set above the low 32, which the kernel does not look at."""
    args = rules(build("allow ioctl unless arg1 == 0x5412 or arg1 == 0x541C  # x"), "SCMP_ACT_ALLOW")["ioctl"]
    tried = [n ^ flip for n in (0x5412, 0x541C) for flip in (0, *(1 << bit for bit in range(32)), 0x0E, 0xFFFFFFFF)]
    allowed = {n for n in tried for [a] in args if (n | 1 << 40) & a["value"] == a["valueTwo"]}
    assert set(tried) - allowed == {0x5412, 0x541C}


def test_libseccomp_makes_a_filter_of_each_profile_and_says_what_it_cannot() -> None:
    check = load_script("check")
    try:
        library = check.open_library()
    except OSError as error:
        pytest.skip(f"no libseccomp on this machine: {error}")
    broken = dict(PROFILE, syscalls=[*PROFILE["syscalls"], *build("allow getpid if arg5 == 1  # x")["syscalls"]])
    broken["syscalls"][-1]["args"][0]["index"] = 9
    unknown = dict(PROFILE, syscalls=build("allow getpidd if arg5 == 1  # x")["syscalls"])
    debug = json.loads((FOLDER / "debug.json").read_text())
    found = [check.find_faults(library, profile) for profile in (PROFILE, debug, broken, unknown)]
    assert found == [[], [], ["getpid: Invalid argument"], ["getpidd: unknown, and it has a condition"]]
