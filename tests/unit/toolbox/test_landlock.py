"""The kernel's second layer: what permissions would allow, Landlock does not."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.toolbox.client import TOOLBOX, WORKSPACE, Client

from corral_toolbox.kernel.landlock import find_abi

pytestmark = pytest.mark.skipif(find_abi() < 2, reason="this kernel has no Landlock of ABI 2")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that anybody may write, and that is none of a box's own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="corral-landlock-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "file").write_text("as it was")
        (folder / "file").chmod(0o666)
        yield folder


def test_a_command_writes_only_where_a_box_has_its_own(box: Client, open_folder: Path) -> None:
    script = f"""
    cd {WORKSPACE}
    for place in {WORKSPACE} /tmp /dev/shm "$HOME"; do
      mkdir -p $place/ll/d && echo x > $place/ll/f && mv $place/ll/f $place/ll/d/f && ln $place/ll/d/f $place/ll/g \\
        && ln -s g $place/ll/h && mkfifo $place/ll/p && rm -r $place/ll && echo fine
    done
    echo x > /dev/null && echo fine
    exec 2>/dev/null
    (echo 0 > /proc/self/oom_score_adj) || echo refused
    (echo x > /proc/self/comm) || echo refused
    (echo x > {open_folder}/file) || echo refused
    (echo x > {open_folder}/new) || echo refused
    rm -f {open_folder}/file; mkdir {open_folder}/d || echo refused
    ln /dev/null {open_folder}/link || echo refused
    cat {open_folder}/file
    """
    assert box.shell(script).stdout == b"fine\n" * 5 + b"refused\n" * 6 + b"as it was"
    assert [(path.name, path.read_text()) for path in open_folder.iterdir()] == [("file", "as it was")]


def test_processes_of_one_box_still_reach_each_other(box: Client) -> None:
    started = box.shell("sleep 300 >/dev/null 2>&1 & echo $!")
    pid = started.stdout.decode().strip()
    done = box.shell(f"readlink /proc/{pid}/exe && ls /proc/{pid}/fd && kill {pid}")
    assert (done.exit_code, b"sleep" in done.stdout) == (0, True)


@pytest.mark.skipif(find_abi() < 6, reason="signals and abstract sockets are scoped since ABI 6")
def test_signals_and_abstract_sockets_stay_inside() -> None:
    script = """
import os, socket, sys
from corral_toolbox.kernel import landlock, syscall
outside = socket.socket(socket.AF_UNIX)
outside.bind(b"\\0corral-test-%d" % os.getpid())
outside.listen()
ours, its = os.pipe()
server = os.fork()
if not server:
    os.close(its)
    os.read(ours, 1)  # until this process has ended
    os._exit(0)
syscall.set_no_new_privs()
assert landlock.confine([], [])
def attempt(call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return "refused"
    return "through"
inside = os.fork()
if not inside:
    os._exit(0 if attempt(os.kill, os.getppid(), 0) == "through" else 1)
print(attempt(os.kill, server, 0), attempt(os.kill, inside, 0), os.waitpid(inside, 0)[1])
print(attempt(socket.socket(socket.AF_UNIX).connect, outside.getsockname()))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={"PYTHONPATH": str(TOOLBOX)}
    )
    assert (done.stdout, done.stderr) == ("refused through 0\nrefused\n", "")
