"""What a box names and says must not steer the terminal of whoever looks at it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

TITLE = "\x1b]0;owned\x07"
CODE = f"""
import os, sys
open({TITLE!r}, "w").write("x")
open("two\\nlines", "w").write("x")
open("right-to-left-\\u202egpj.exe", "w").write("x")
os.symlink({TITLE!r} + "/target", "link")
"""


def run(home: Path, *arguments: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "corral.cli", *arguments],
        capture_output=True,
        env=os.environ | {"HOME": str(home), "TERM": "xterm"},
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_names_of_files_and_arguments_cannot_steer_a_terminal(home: Path, tmp_path: Path, sandbox_image: str) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    code, _, summary = run(home, "exec", "-C", str(workspace), "--", "python3", "-c", CODE, TITLE)
    assert code == 0, summary
    shown = {"summary": summary}
    for name in ("show", "verify"):
        code, out, err = run(home, "log", name, "last")
        assert code == 0, err
        shown[name] = out + err
    _, out, err = run(home, "runs")
    shown["runs"] = out + err
    steering = {
        name: [mark for mark in (b"\x1b", b"\x07", "\u202e".encode(), b"two\nlines") if mark in text]
        for name, text in shown.items()
    }
    assert steering == {name: [] for name in shown}
    assert b"owned" in summary
