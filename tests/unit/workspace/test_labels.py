from __future__ import annotations

import os
import subprocess

from corral.sandbox.labels import labels, owner_is_alive, process_start_ticks


def test_own_labels_are_alive() -> None:
    marks = labels("20300101-000000-abcdef", "box")
    assert owner_is_alive(marks)
    assert marks == marks | {"corral": "1", "corral.run": "20300101-000000-abcdef", "corral.role": "box"}
    assert marks["corral.owner.pid"] == str(os.getpid())


def test_ended_and_reused_pids_are_dead() -> None:
    child = subprocess.Popen(["sleep", "60"])
    start = process_start_ticks(child.pid)
    marks = labels("r", "box") | {"corral.owner.pid": str(child.pid), "corral.owner.start": str(start)}
    assert owner_is_alive(marks)
    assert not owner_is_alive(marks | {"corral.owner.start": str((start or 0) - 1)})
    assert not owner_is_alive(marks | {"corral.owner.boot": "another"})
    child.kill()
    assert os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT) is not None
    assert not owner_is_alive(marks)  # a zombie owns nothing
    child.wait()
    assert not owner_is_alive(marks)


def test_labels_without_owner_are_dead() -> None:
    assert not owner_is_alive({})
    assert not owner_is_alive({"corral.owner.pid": "x", "corral.owner.start": "1"})
