"""`corral shell` and `corral exec -t` in a real terminal: keys, sizes, exit codes, and the terminal afterwards."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-c", "from corral.cli.start import main; main()"]
HANG_S = 120.0


class Terminal:
    """A terminal with corral in its foreground, and what it shows."""

    def __init__(self, *arguments: str) -> None:
        self.ours, self.theirs = os.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(self.theirs)
        self.shown = b""
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env=os.environ | {"TERM": "xterm"},
        )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)

    def _read(self, wait_s: float) -> None:
        if select.select([self.ours], [], [], wait_s)[0]:
            self.shown += os.read(self.ours, 65536)

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG_S
        while not condition():
            assert time.monotonic() < deadline, self.shown
            self._read(0.05)

    def expect(self, words: bytes) -> None:
        self.wait(lambda: words in self.shown)

    def type(self, text: bytes) -> None:
        os.write(self.ours, text)

    def end(self) -> int:
        """The exit code, when everything has been shown."""
        self.wait(lambda: self.process.poll() is not None)
        while select.select([self.ours], [], [], 0)[0]:
            self._read(0)
        assert self.process.returncode is not None
        return self.process.returncode

    @property
    def is_restored(self) -> bool:
        return termios.tcgetattr(self.theirs) == self.before


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


@pytest.fixture
def start(repo: Path, sandbox_image: str) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def run(command: str, *arguments: str) -> Terminal:
        made.append(Terminal(command, "-C", str(repo), "--image", sandbox_image, *arguments))
        return made[-1]

    yield run
    for terminal in made:
        terminal.close()


Start = Callable[..., Terminal]


@pytest.mark.docker
def test_a_shell_is_typed_into_and_says_what_it_changed(start: Start, repo: Path) -> None:
    terminal = start("shell")
    terminal.expect(b"$ ")
    assert not terminal.is_restored  # raw: what is typed now is not echoed here, but there
    terminal.type(b"stty size; echo $((40 + 2))-here; echo two > b.txt\r")
    terminal.expect(b"42-here")
    assert b"30 100" in terminal.shown
    terminal.type(b"exit 7\r")
    assert terminal.end() == 7
    assert b"b.txt" in terminal.shown.partition(b"exit 7")[2]
    assert terminal.is_restored
    assert not (repo / "b.txt").exists()


@pytest.mark.docker
def test_ctrl_c_goes_to_the_box(start: Start) -> None:
    line = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"
    terminal = start("exec", "-t", "--", "sh", "-c", line)
    terminal.expect(b"ready")
    terminal.type(b"\x03")
    assert terminal.end() == 9
    assert b"caught" in terminal.shown
    assert terminal.is_restored


@pytest.mark.docker
def test_a_new_size_goes_to_the_box(start: Start) -> None:
    line = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done"
    terminal = start("exec", "-t", "--", "sh", "-c", line)
    terminal.expect(b"ready")
    fcntl.ioctl(terminal.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
    assert terminal.end() == 0
    assert b"50 132" in terminal.shown


@pytest.mark.docker
def test_the_box_draws_and_does_not_steer(start: Start) -> None:
    attack = r"printf '\033]0;owned\007\033]52;c;eA==\007\033[6n\033[c\005\033P$qm\033\\\033[31mred\033[0m\n'"
    terminal = start("exec", "-t", "-q", "--", "sh", "-c", f"stty -onlcr; {attack}")
    assert terminal.end() == 0
    assert terminal.shown.startswith(b"\x1b[31mred\x1b[0m\n")
    for mark in (b"owned", b"\x1b]", b"\x1bP", b"\x1b[6n", b"\x1b[c", b"\x05"):
        assert mark not in terminal.shown


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_terminal_is_set_back_however_corral_ends(start: Start, number: signal.Signals) -> None:
    terminal = start("exec", "-t", "--", "sh", "-c", "echo ready; sleep 600")
    terminal.expect(b"ready")
    assert not terminal.is_restored
    terminal.process.send_signal(number)
    assert terminal.end() == (130 if number is signal.SIGTERM else -signal.SIGKILL)
    terminal.wait(lambda: terminal.is_restored)


def test_without_a_terminal_there_is_none_to_give(tmp_path: Path) -> None:
    argv = [*PROGRAM, "shell", "-C", str(tmp_path)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"needs one here" in done.stderr
