"""The doctor's judgement on facts, and that it answers whatever is missing."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from corral.doctor import Check, Status, run_checks, worst
from corral.doctor.engine import judge_engine, judge_no_engine
from corral.doctor.host import check_data_dir, check_disk, check_kernel, check_mounts
from corral.sandbox.image import ImageReport
from corral.sandbox.probe import EngineFacts, EngineProblem, NoEngine, probe_engine

GOOD = EngineFacts(
    address="http+docker://localhost",
    version="20.10.24",
    api_version="1.41",
    kernel="6.1.0",
    cgroup_version="2",
    storage_driver="overlay2",
    root_dir="/var/lib/docker",
    security=("apparmor", "seccomp", "cgroupns"),
    runtimes=("runc",),
    missing_limits=(),
    leftover_containers=0,
    leftover_volumes=0,
)
IMAGE = ImageReport(
    image_id="sha256:1", tag="corral-sandbox:1", current=True, base="b", source="packages", size_bytes=1 << 29
)


def statuses(checks: tuple[Check, ...]) -> dict[str, Status]:
    return {check.name: check.status for check in checks if check.status is not Status.OK}


def test_a_good_engine_has_nothing_to_say() -> None:
    assert statuses(judge_engine(GOOD, IMAGE, runtime="runc")) == {}


def test_another_runtime_must_start_something() -> None:
    facts = replace(GOOD, runtimes=("runc", "runsc"))
    (fine,) = [check for check in judge_engine(facts, IMAGE, runtime="runsc", start=0.31) if check.name == "runtime"]
    assert fine.detail == "runsc; the engine has runc, runsc, and starts a container of runsc in 0.3 s"
    assert statuses(judge_engine(facts, IMAGE, runtime="runsc", start="no such device")) == {"runtime": Status.FAIL}
    assert statuses(judge_engine(GOOD, IMAGE, runtime="runsc")) == {"runtime": Status.FAIL}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"api_version": "1.40"}, {"engine": Status.FAIL}),
        ({"api_version": "odd"}, {"engine": Status.FAIL}),
        ({"security": ("apparmor",)}, {"seccomp": Status.FAIL}),
        ({"security": ("seccomp", "userns")}, {"users": Status.FAIL}),  # and it does not say to which ids
        ({"security": ("seccomp", "rootless")}, {"users": Status.WARN}),
        ({"missing_limits": ("swap",)}, {"cgroup": Status.WARN}),
        ({"runtimes": ("crun",)}, {"runtime": Status.FAIL}),
        ({"leftover_volumes": 2}, {"leftovers": Status.WARN}),
    ],
)
def test_each_lack_is_told_with_a_hint(change: dict[str, object], expected: dict[str, Status]) -> None:
    checks = judge_engine(replace(GOOD, **change), IMAGE, runtime="runc")  # type: ignore[arg-type]
    assert statuses(checks) == expected
    assert all(check.hint for check in checks if check.status is not Status.OK)


def test_mapped_user_ids_are_told() -> None:
    facts = replace(GOOD, security=("seccomp", "userns"), root_dir="/var/lib/docker/231072.231072")
    (check,) = (check for check in judge_engine(facts, IMAGE, runtime="runc") if check.name == "users")
    assert check == Check("users", Status.OK, "root of a box is user 231072 of this host (userns-remap): boxes use it")


def test_a_missing_and_an_old_image_are_told_apart() -> None:
    assert statuses(judge_engine(GOOD, None, runtime="runc")) == {"image": Status.FAIL}
    assert statuses(judge_engine(GOOD, replace(IMAGE, current=False), runtime="runc")) == {"image": Status.WARN}


@pytest.mark.parametrize("problem", list(EngineProblem))
def test_every_reason_for_no_engine_has_a_hint_and_prints_safely(problem: EngineProblem) -> None:
    (check,) = judge_no_engine(NoEngine(problem, "no\x1b[31m\nengine"))
    assert check.status is Status.FAIL
    assert check.hint
    assert check.detail.isprintable()


@pytest.mark.parametrize(
    ("release", "status"),
    [("6.1.0-18-amd64", Status.OK), ("5.15.0", Status.WARN), ("5.4.0", Status.WARN), ("", Status.WARN)],
)
def test_kernel_by_version(release: str, status: Status) -> None:
    assert check_kernel(release).status is status


def test_a_long_mount_table_is_warned_about(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(b"x\n" * 5_001)
    assert check_mounts(table).status is Status.WARN
    assert check_mounts(tmp_path / "none").status is Status.WARN
    assert check_mounts().status is Status.OK


def test_a_data_directory_that_cannot_be_is_a_failure_and_none_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert check_data_dir(tmp_path / "file" / "runs").status is Status.FAIL
    assert check_data_dir(tmp_path / "a" / "runs").status is Status.OK
    assert not (tmp_path / "a").exists()
    assert check_disk("disk", tmp_path / "a" / "runs").name == "disk"


def test_the_reason_for_no_engine_comes_from_the_system(tmp_path: Path) -> None:
    nobody_listens = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(nobody_listens))
    found = [probe_engine(f"unix://{path}") for path in (tmp_path / "none", nobody_listens)]
    assert [answer.problem for answer in found if isinstance(answer, NoEngine)] == [EngineProblem.ABSENT] * 2


def test_an_engine_that_accepts_and_says_nothing_is_silent(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen()
        found = probe_engine(f"unix://{tmp_path / 's'}", timeout_s=1)
    assert isinstance(found, NoEngine)
    assert found.problem is EngineProblem.SILENT


def test_the_doctor_answers_where_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "config.toml"
    broken.write_text("mode = 3")
    monkeypatch.setenv("CORRAL_CONFIG", str(broken))
    monkeypatch.setenv("PATH", str(tmp_path))
    checks = run_checks(engine_url=f"unix://{tmp_path / 'none'}")
    assert statuses(checks) == {"engine": Status.FAIL, "git": Status.FAIL, "settings": Status.FAIL}
    assert worst(checks) is Status.FAIL
    assert all("\n" not in f"{check.detail}{check.hint}" for check in checks)
