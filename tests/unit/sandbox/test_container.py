"""The body of POST /containers/create, as values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from corral.errors import ConfigError
from corral.sandbox.container import build_command_env, build_config, choose_name, fit_limits, load_seccomp_profile
from corral.sandbox.entry import Entry
from corral.sandbox.spec import GIB, MIB, Limits, SandboxSpec

SPEC = SandboxSpec(Path("/w"), Path("/r"), "run1")
MOUNT = {"Type": "volume", "Target": "/workspace", "VolumeOptions": {"NoCopy": True, "Labels": {"a": "b"}}}
MARKS = {"corral": "1", "corral.run": "run1"}


def build(**changes: object) -> dict[str, object]:
    arguments: dict[str, object] = {"mount": MOUNT, "marks": MARKS, "seccomp": "{}"}
    return build_config(SPEC, **(arguments | changes))  # type: ignore[arg-type]


def test_isolation_is_complete() -> None:
    host = build()["HostConfig"]
    assert isinstance(host, dict)
    expected = {
        "AutoRemove": True,
        "Binds": [],
        "CapAdd": ["KILL", "SETGID", "SETPCAP", "SETUID"],
        "CapDrop": ["ALL"],
        "CgroupnsMode": "private",
        "Devices": [],
        "Init": False,
        "IpcMode": "private",
        "LogConfig": {"Type": "none", "Config": {}},
        "Memory": 4 * GIB,
        "MemorySwap": 4 * GIB,
        "NanoCpus": 2_000_000_000,
        "NetworkMode": "none",
        "OomKillDisable": False,
        "OomScoreAdj": 500,
        "PidMode": "",
        "PidsLimit": 512,
        "Privileged": False,
        "ReadonlyRootfs": True,
        "RestartPolicy": {"Name": "no"},
        "Runtime": "runc",
        "SecurityOpt": ["no-new-privileges", "seccomp={}"],
        "ShmSize": 64 * MIB,
        "Sysctls": {"kernel.msgmni": "256", "kernel.sem": "250 32000 100 128", "kernel.shmall": "16384"},
        "UTSMode": "",
        "UsernsMode": "",
        "VolumesFrom": [],
    }
    assert {key: value for key, value in host.items() if key in expected} == expected
    assert host.keys() - expected.keys() == {"MaskedPaths", "Mounts", "ReadonlyPaths", "Tmpfs", "Ulimits"}


def test_the_image_decides_nothing_about_the_toolbox() -> None:
    config = build(image_env=["PATH=/nothing", "LD_PRELOAD=/x.so", "A=1"])
    own = ("Entrypoint", "Cmd", "User", "WorkingDir", "Env", "Healthcheck", "Hostname", "OpenStdin", "StdinOnce", "Tty")
    assert {key: config[key] for key in own} == {
        "Entrypoint": ["/usr/bin/python3", "-I", "-S", "/opt/corral/toolbox"],
        "Cmd": [],
        "User": "0:0",
        "WorkingDir": "/",
        "Env": [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL=C",
            "MALLOC_ARENA_MAX=1",
            "A",
            "LD_PRELOAD",
        ],
        "Healthcheck": {"Test": ["NONE"]},
        "Hostname": "box",
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
    }


def test_volumes_of_the_image_are_covered_and_ours_is_labelled() -> None:
    host = build(image_volumes=["/data", "/workspace", "/tmp"], hosts_file="/r/hosts")["HostConfig"]
    assert isinstance(host, dict)
    assert host["Mounts"] == [
        {
            "Type": "volume",
            "Target": "/workspace",
            "VolumeOptions": {"NoCopy": True, "Labels": {"corral": "1", "corral.run": "run1", "a": "b"}},
        },
        {"Type": "tmpfs", "Target": "/data", "TmpfsOptions": {"SizeBytes": 64 * MIB, "Mode": 0o755}},
        {"Type": "bind", "Source": "/r/hosts", "Target": "/etc/hosts", "ReadOnly": True},
    ]


def test_a_lent_toolbox_has_its_own_start_and_nothing_of_the_image_lies_over_it() -> None:
    lent = {"Type": "volume", "Source": "v", "Target": "/opt/corral", "ReadOnly": True}
    entry = Entry(("/opt/corral/runtime/ld.so", "x"), (lent,), "/home/box", (7, 8))
    config = build(image_volumes=["/opt/corral", "/home"], entry=entry)
    host = config["HostConfig"]
    assert isinstance(host, dict)
    assert config["Entrypoint"] == ["/opt/corral/runtime/ld.so", "x"]
    assert host["Mounts"][1:] == [
        {"Type": "tmpfs", "Target": "/home", "TmpfsOptions": {"SizeBytes": 64 * MIB, "Mode": 0o755}},
        lent,
    ]
    assert set(host["Tmpfs"]) == {"/dev/shm", "/tmp", "/run", "/home/box"}
    assert host["Tmpfs"]["/home/box"].endswith("mode=755,uid=7,gid=8")


def test_the_engines_network_is_left_out_only_with_names_for_loopback() -> None:
    assert (build()["NetworkDisabled"], build(hosts_file="/r/hosts")["NetworkDisabled"]) == (False, True)


def test_limits_fit_the_machine() -> None:
    fitted = fit_limits(Limits(), cpus=1, memory=2 * GIB)
    assert (fitted.memory_bytes, fitted.cpus) == (1 * GIB, 1.0)
    assert fitted.tmp_bytes + fitted.home_bytes + 2 * fitted.shm_bytes + 16 * MIB <= fitted.memory_bytes // 2
    assert fit_limits(Limits(), cpus=8, memory=64 * GIB) == Limits()


@pytest.mark.parametrize("change", [{"memory_bytes": MIB}, {"pids": 1}, {"cpus": 0.0}, {"open_files": 10}])
def test_refuses_limits_that_no_box_can_live_with(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        fit_limits(replace(Limits(), **change), cpus=8, memory=64 * GIB)  # type: ignore[arg-type]


def test_command_environment() -> None:
    assert build_command_env(["PATH=/opt/x:/usr/bin", "HOME=/root", "JAVA_HOME=/j", "E="], {"A": "1"}) == {
        "PATH": "/opt/x:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin",
        "JAVA_HOME": "/j",
        "E": "",
        "A": "1",
    }


def test_names_are_random() -> None:
    assert len({choose_name() for _ in range(100)}) == 100


def test_the_profile_is_shipped() -> None:
    assert load_seccomp_profile().startswith("{")


def test_ipc_bounds_are_left_out_only_where_nobody_can_set_them() -> None:
    host, bare = build()["HostConfig"], build(can_limit_ipc=False)["HostConfig"]
    assert isinstance(host, dict) and isinstance(bare, dict)
    assert sorted(host["Sysctls"]) == ["kernel.msgmni", "kernel.sem", "kernel.shmall"]
    assert bare == {**host, "Sysctls": {}}
