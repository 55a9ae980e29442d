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
    spec = importlib.util.spec_from_file_location("generate", FOLDER / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(table: str) -> dict[str, Any]:
    return dict(load_generator().build_profile(table))


def rules(profile: dict[str, Any], action: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for rule in profile["syscalls"]:
        for name in rule["names"] if rule["action"] == action else ():
            found.setdefault(name, []).append(rule["args"])
    return found


PROFILE = json.loads((FOLDER / "default.json").read_text())


def test_is_what_the_table_says() -> None:
    assert (FOLDER / "default.json").read_text() == load_generator().render()


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
        "personality": 3,
        "socket": 4,
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
    ],
)
def test_refuses_an_unclear_table(table: str) -> None:
    with pytest.raises(ValueError, match=r"line \d"):
        build(table)


def test_two_conditions_are_joined_by_or() -> None:
    table = "allow socket if arg0 == 1  # a\nallow socket if arg0 == 16 and arg2 == 0  # b"
    assert [len(args) for args in rules(build(table), "SCMP_ACT_ALLOW")["socket"]] == [1, 2]
