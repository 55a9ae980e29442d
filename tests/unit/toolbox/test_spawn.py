"""A program started under other ids: it has them whole or does not start, and who started it keeps its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.unit.toolbox.client import GID, PYTHON, TOOLBOX, UID

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="changing ids needs root"),
    pytest.mark.parametrize("by_vfork", [True, False]),
]


def _run(script: str, *, by_vfork: bool) -> list[str]:
    """What the script printed, run where `starter` is one and `UID` and `GID` are not its own."""
    if by_vfork and os.uname().machine != "x86_64":
        pytest.skip(f"no instructions for {os.uname().machine}")
    start = f"""
import os, sys
sys.path.insert(0, {str(TOOLBOX)!r})
from corral_toolbox.kernel.spawn import Starter
starter = Starter(by_vfork={by_vfork})
assert (starter._walk is not None) == {by_vfork}
UID, GID = {UID}, {GID}
"""
    done = subprocess.run([PYTHON, "-I", "-S", "-c", start + script], capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    return done.stdout.split()


def test_program_has_its_ids_session_and_descriptors_and_no_others(by_vfork: bool) -> None:
    script = """
ours, theirs = os.pipe()
os.set_inheritable(ours, False)
same = os.dup(theirs)
pid = starter.start(b"/bin/sh", [b"sh", b"-c", b'''
grep -E '^([UG]id|Cap(Eff|Prm)):' /proc/$$/status; echo $A; ls /proc/$$/fd; cut -d' ' -f6 /proc/$$/stat
'''], {b"A": b"b c"}, [(theirs, 1), (same, same)], UID, GID)
os.close(theirs)
os.close(same)
told = b"".join(iter(lambda: os.read(ours, 4096), b"")).decode()
assert os.waitpid(pid, 0)[1] == 0
print(told, "mine", *os.getresuid(), *os.getresgid(), int(str(pid) in told.split()), same)
"""
    *told, same = _run(script, by_vfork=by_vfork)
    none = "0" * 16
    assert told == [
        *("Uid:", *[str(UID)] * 4, "Gid:", *[str(GID)] * 4),
        *("CapPrm:", none, "CapEff:", none),
        *("b", "c", "0", "1", "2", same),
        *(told[-9], "mine", *"000", *"000", "1"),
    ]


@pytest.mark.parametrize(("path", "errno"), [("/nowhere", 2), ("/", 13), ("/etc/passwd", 13), ("/etc/passwd/x", 20)])
def test_program_that_cannot_be_run_is_an_error_and_leaves_no_process(path: str, errno: int, by_vfork: bool) -> None:
    script = f"""
try:
    starter.start({path.encode()!r}, [b"x"], {{}}, [], UID, GID)
except OSError as error:
    print(error.errno)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("none left")
"""
    assert _run(script, by_vfork=by_vfork) == [str(errno), "none", "left"]


def test_nothing_starts_when_its_ids_cannot_be_set(tmp_path: Path, by_vfork: bool) -> None:
    tmp_path.chmod(0o777)
    script = f"""
os.setresuid(UID, UID, UID)
for copies in [], [(99, 1)]:
    try:
        starter.start(b"/usr/bin/touch", [b"touch", {os.fsencode(tmp_path / "ran")!r}], {{}}, copies, UID + 1, GID)
    except OSError as error:
        print(error.errno)
"""
    assert _run(script, by_vfork=by_vfork) == ["1", "9"]
    assert not (tmp_path / "ran").exists()


def test_each_program_has_the_environment_it_is_given(by_vfork: bool) -> None:
    script = """
env = {b"A": b"1"}
for change in ({}, {b"A": b"2"}, {}, {b"B": b"3"}):
    env.update(change)
    ours, theirs = os.pipe()
    pid = starter.start(b"/usr/bin/env", [b"env"], env, [(theirs, 1)], UID, GID)
    os.close(theirs)
    print(",".join(sorted(b"".join(iter(lambda: os.read(ours, 4096), b"")).decode().split())))
    assert os.waitpid(pid, 0)[1] == 0
"""
    assert _run(script, by_vfork=by_vfork) == ["A=1", "A=2", "A=2", "A=2,B=3"]
