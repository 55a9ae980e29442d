"""Another runtime than the engine's own: what its failures mean, what a box of it lacks, what it may use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from corral.errors import ConfigError, EngineTimeout, SandboxError
from corral.sandbox.ability import describe_missing, has_own_kernel
from corral.sandbox.base import BoxInfo
from corral.sandbox.container import build_config
from corral.sandbox.group import GroupCounter, parse_counter
from corral.sandbox.refusal import Refusals
from corral.sandbox.runtime import explain_failure, limit_start
from corral.sandbox.spec import SandboxSpec, WorkspaceMode

EVERYTHING = ("host_kernel", "filter", "landlock", "process_record", "process_trees", "counters")
INFO = BoxInfo("id", "run", "image", "sha256:1", "runsc", WorkspaceMode.OVERLAY, "", "/workspace", 7, 7)
REFUSED = "the engine refused to start the container: OCI runtime start failed: "


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SandboxError("the engine refused: Unknown runtime specified gv"), "the engine has no runtime 'gv'"),
        (SandboxError("the engine refused: unknown or invalid runtime name: gv"), "the engine has no runtime 'gv'"),
        (EngineTimeout("not in time"), "the runtime 'gv' did not start a box within 20 s"),
        (SandboxError(f"{REFUSED}no such device"), "the runtime 'gv' cannot start a box: start failed: no such device"),
    ],
)
def test_what_keeps_a_chosen_runtime_from_starting_is_the_users_to_mend(error: SandboxError, message: str) -> None:
    told = explain_failure(error, "gv")
    assert (type(told), told.message, bool(told.hint)) == (ConfigError, message, True)


def test_gvisor_that_wants_a_network_is_told_how_to_do_without() -> None:
    told = explain_failure(SandboxError(f"{REFUSED}cannot run with network enabled in root network namespace"), "gv")
    assert "--network=none" in (told.hint or "")


def test_failures_of_the_usual_runtime_and_others_stay_what_they_are() -> None:
    timeout, other = EngineTimeout("not in time"), SandboxError("no space left")
    assert (explain_failure(timeout, "runc"), explain_failure(other, "gv")) == (timeout, other)
    assert limit_start("gv") < limit_start("runc")


def test_a_box_with_everything_lacks_nothing() -> None:
    assert list(describe_missing(EVERYTHING, is_watched=True)) == []


@pytest.mark.parametrize(
    ("capability", "words"),
    [
        ("landlock", "no Landlock"),
        ("process_record", "are not recorded"),
        ("process_trees", "takes along"),
        ("host_kernel", "a fork bomb"),
    ],
)
def test_each_thing_that_is_missing_is_told(capability: str, words: str) -> None:
    rest = [name for name in EVERYTHING if name != capability]
    assert words in " ".join(describe_missing(rest, is_watched=True))


def test_a_record_that_nobody_asked_for_is_not_missed() -> None:
    assert list(describe_missing(EVERYTHING[:3] + EVERYTHING[4:], is_watched=False)) == []


def test_a_kernel_of_its_own_takes_a_runtime_that_was_chosen() -> None:
    assert has_own_kernel(INFO)
    assert not has_own_kernel(replace(INFO, runtime="runc"))
    assert not has_own_kernel(replace(INFO, capabilities=("host_kernel",)))


@pytest.mark.parametrize(("runtime", "limit"), [("runc", 512), ("runsc", 5120)])
def test_a_process_is_several_of_the_hosts_under_another_runtime(runtime: str, limit: int, tmp_path: Path) -> None:
    spec = SandboxSpec(tmp_path, tmp_path, "run", runtime=runtime)
    config = build_config(spec, mount={}, marks={}, seccomp="{}")
    assert (config["HostConfig"]["PidsLimit"], config["HostConfig"]["Runtime"]) == (limit, runtime)


@pytest.mark.parametrize(
    ("text", "count"),
    [(b"max 3\n", 3), (b"max 0\n", 0), (b"", None), (b"maximum 5\nmax x\n", None), (b"low 1\nmax 2", 2)],
)
def test_refused_processes_are_counted(text: bytes, count: int | None) -> None:
    assert parse_counter(text, b"max") == count


def test_a_refusal_is_seen_and_remembered(tmp_path: Path) -> None:
    events = tmp_path / "pids.events"
    events.write_bytes(b"max 0\n")
    refusals = Refusals(GroupCounter(str(events), "max"))
    assert not refusals.look()
    refusals.start()
    events.write_bytes(b"max 2\n")
    assert refusals.look()
    events.write_bytes(b"max 0\n")
    assert refusals.look()
    refusals.stop()


def test_a_box_of_another_machine_has_no_counter_here() -> None:
    assert Refusals.find("0" * 64) is None
