"""The kernel's counters in both cgroup layouts.

The files of version 1 are also read in every real box of a host that has that layout. Those of version 2 are written
after the kernel's documentation (cgroup-v2.rst), with the fields of Linux 6.1: no such host was there to record from.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corral_toolbox.kernel.counter import Counters, is_full, read_cpu, read_room, read_tasks_peak

V1 = {
    "memory/memory.oom_control": [
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        "oom_kill_disable 0\nunder_oom 1\noom_kill 5\n",
    ],
    "pids/pids.events": ["max 0\n", "max 17\n"],
}
V2 = {
    "cgroup.controllers": ["cpuset cpu io memory hugetlb pids rdma misc\n"] * 2,
    "memory.events": [
        "low 0\nhigh 0\nmax 12\noom 3\noom_kill 3\noom_group_kill 0\n",
        "low 0\nhigh 0\nmax 871\noom 9\noom_kill 5\noom_group_kill 0\n",
    ],
    "pids.events": ["max 0\n", "max 17\n"],
}


def write(root: Path, files: dict[str, list[str]], moment: int) -> None:
    for name, texts in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(texts[moment])


@pytest.mark.parametrize(("layout", "files"), [("v1", V1), ("v2", V2)])
def test_counts_kills_and_refusals_not_mere_pressure(tmp_path: Path, layout: str, files: dict[str, list[str]]) -> None:
    write(tmp_path, files, 0)
    counters = Counters(str(tmp_path))
    assert (counters.layout, counters.read_oom_kills(), counters.read_pids_refused()) == (layout, 3, 0)
    write(tmp_path, files, 1)
    assert (counters.read_oom_kills(), counters.read_pids_refused()) == (5, 17)


@pytest.mark.parametrize(
    "files",
    [
        {
            "cpuacct/cpuacct.usage_user": "1500000000\n",
            "cpuacct/cpuacct.usage_sys": "250000000\n",
            "pids/pids.peak": "7\n",
        },
        {
            "cpu.stat": "usage_usec 1750000\nuser_usec 1500000\nsystem_usec 250000\nnr_periods 0\n",
            "pids.peak": "7\n",
        },
    ],
    ids=["v1", "v2"],
)
def test_processor_time_and_peak_of_a_whole_box(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, {name: [text] for name, text in files.items()}, 0)
    assert (read_cpu(str(tmp_path)), read_tasks_peak(str(tmp_path))) == ((1.5, 0.25), 7)


def test_without_counters_nothing_is_claimed(tmp_path: Path) -> None:
    assert (read_cpu(str(tmp_path)), read_tasks_peak(str(tmp_path))) == ((0.0, 0.0), 0)
    counters = Counters(str(tmp_path))
    assert (counters.layout, counters.read_oom_kills(), counters.read_pids_refused()) == ("", 0, 0)


def test_a_damaged_counter_claims_nothing(tmp_path: Path) -> None:
    write(tmp_path, {name: ["oom_kill many\nmax\n\xff", ""] for name in V2}, 0)
    counters = Counters(str(tmp_path))
    assert (counters.read_oom_kills(), counters.read_pids_refused()) == (0, 0)


def test_room_is_that_of_the_file_system(tmp_path: Path) -> None:
    used, inodes, free = read_room(os.fsencode(tmp_path))
    status = os.statvfs(tmp_path)
    assert used + free <= status.f_blocks * status.f_frsize
    assert 0 < inodes <= status.f_files or status.f_files == 0
    assert not is_full(os.fsencode(tmp_path))
    assert not is_full(b"/nowhere")
