"""Ends of processes as descriptors tell them: those of grandchildren too, where the kernel keeps them."""

from __future__ import annotations

import os
import select

import pytest

from corral_toolbox.kernel import ending
from corral_toolbox.kernel.ending import End, Endings

TELLS = ending._tells_status()


def _wait(endings: Endings, count: int) -> list[End]:
    found: list[End] = []
    while len(found) < count:
        assert select.select([endings.poll_fd], [], [], 20)[0], "no end was told"
        found += endings.collect()
    return found


def _start(code: int = 0, *, signal: int = 0) -> tuple[int, int]:
    """A grandchild that ends, and is waited for, when the descriptor is closed; and that descriptor."""
    told, tell = os.pipe()
    hold, go = os.pipe()
    middle = os.fork()
    if not middle:
        os.close(go)
        child = os.fork()
        if not child:
            os.read(hold, 1)
            if signal:
                os.kill(os.getpid(), signal)
            os._exit(code)
        os.write(tell, b"%d" % child)
        os.waitpid(child, 0)
        os._exit(0)
    os.close(hold)
    os.close(tell)
    pid = int(os.read(told, 32))
    os.close(told)
    return pid, go


@pytest.mark.skipif(not TELLS, reason="this kernel tells an end only to the parent")
def test_the_end_of_somebody_elses_child_is_told_with_its_status() -> None:
    endings = Endings(16)
    started = [_start(3), _start(signal=9), _start()]
    for pid, _ in started:
        endings.watch(pid)
        endings.watch(pid)
    assert endings.collect() == []
    for _, go in started:
        os.close(go)
    found = {pid: (lived >= 0, status) for pid, lived, status in _wait(endings, 3)}
    assert found == {
        pid: (True, status) for (pid, _), status in zip(started, (3 << 8, 9, 0), strict=True)
    }  # as wait gives them
    assert endings.collect() == []
    for _ in started:
        os.wait()


def test_an_older_kernel_tells_of_own_children_only_and_of_others_that_they_ended() -> None:
    endings = Endings(16, tells_status=False)
    hold, go = os.pipe()
    own = os.fork()
    if not own:
        os.close(go)
        os.read(hold, 1)
        os._exit(5)
    os.close(hold)
    other, go_other = _start(3)
    endings.watch(own)
    endings.watch(other)
    os.close(go)
    os.close(go_other)
    found = {pid: status for pid, _, status in _wait(endings, 2)}
    assert found == {own: 5 << 8, other: None}
    assert os.waitpid(own, 0)[1] == 5 << 8  # it was only looked at
    os.wait()


def test_who_is_not_there_or_too_many_is_not_watched_and_nothing_stays_open() -> None:
    endings = Endings(1)
    before = set(os.listdir("/proc/self/fd"))
    endings.watch((1 << 22) - 1)
    endings.watch(os.getpid())
    endings.watch(os.getppid())
    assert len(set(os.listdir("/proc/self/fd")) - before) == 1
    endings.forget()
    assert set(os.listdir("/proc/self/fd")) == before
    endings.watch(os.getppid())
    assert endings.collect() == []
    endings.forget()
