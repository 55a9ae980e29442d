"""The janitor's own life: quiet when nothing is open, gone when its orchestrator is, and never the workspace's code."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from corral.sandbox.janitor import _read_until_end

OWNER = "import sys, time; from corral.sandbox.janitor import start_janitor; {body}; print('ready', flush=True); {end}"


def run_owner(body: str, end: str, cwd: Path) -> subprocess.Popen[bytes]:
    code = OWNER.format(body=body, end=end)
    environment = os.environ | {"DOCKER_HOST": f"unix://{cwd}/none.sock"}
    process = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, cwd=cwd, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdout.close()
    return process


def find_janitors(owner: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if b"corral.sandbox.janitor" in words and str(owner).encode() in words:
            found.append(int(entry.name))
    return found


def wait_for_janitors(owner: int) -> list[int]:
    """Those there are, once there is one: a program that has just begun shows no arguments for a moment."""
    deadline = time.monotonic() + 5
    while not find_janitors(owner) and time.monotonic() < deadline:
        time.sleep(0.01)
    return find_janitors(owner)


def wait_until_gone(owner: int, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while find_janitors(owner) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not find_janitors(owner)


def test_one_per_process_and_it_ends_with_it(tmp_path: Path) -> None:
    body = "a = start_janitor(); assert a is start_janitor(); a.expect('corral-1'); a.forget('corral-1')"
    process = run_owner(body, "time.sleep(60)", tmp_path)
    assert len(wait_for_janitors(process.pid)) == 1
    process.kill()
    process.wait()
    assert wait_until_gone(process.pid, 5)


def test_it_is_in_a_session_of_its_own_and_holds_no_output(tmp_path: Path) -> None:
    process = run_owner("start_janitor()", "time.sleep(60)", tmp_path)
    try:
        (janitor,) = wait_for_janitors(process.pid)
        assert os.getsid(janitor) == janitor
        assert {os.readlink(f"/proc/{janitor}/fd/{n}") for n in (1, 2)} == {"/dev/null"}
        assert os.readlink(f"/proc/{janitor}/cwd") == "/"
    finally:
        process.kill()
        process.wait()


def test_janitor_never_imports_from_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "corral").mkdir()
    (tmp_path / "corral/__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (tmp_path / "os.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    process = run_owner("start_janitor()", "time.sleep(60)", tmp_path)
    process.kill()
    process.wait()
    assert wait_until_gone(process.pid, 5)
    assert not (tmp_path / "ran").exists()


def test_reads_what_is_open_whatever_the_slicing() -> None:
    reader, writer = os.pipe()
    for part in (b"#run\n+a", b"\n=a\n+b\n+c\n-", b"c\n"):
        os.write(writer, part)
    os.close(writer)
    assert _read_until_end(reader) == {"run": False, "a": False, "b": True}
    os.close(reader)
