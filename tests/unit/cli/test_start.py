"""Ctrl-C before a command listens to it: the process ends, and no callback of a library can keep it from that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_SWALLOW = """
import os, signal, sys, weakref

class Thing: pass

class Finder:
    # What is raised in a weak reference's callback is printed and dropped; the import system has such callbacks itself.
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            thing = Thing()
            reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
            del thing

sys.meta_path.insert(0, Finder())
if {ignored}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
from corral.cli.start import main
main()
"""


def _hear() -> None:
    """A test run in the background is deaf to it, and its children would be."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(place: Path, module: str, *arguments: str, ignored: bool = False) -> subprocess.CompletedProcess[str]:
    """corral, interrupted while it loads `module`; there is no engine that it could reach."""
    (place / "work").mkdir()
    program = [sys.executable, "-c", _SWALLOW.format(module=module, ignored=ignored), *arguments]
    environment = os.environ | {"DOCKER_HOST": f"unix://{place}/none", "XDG_DATA_HOME": str(place / "data")}
    return subprocess.run(
        program,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        cwd=place / "work",
        env=environment,
        preexec_fn=_hear,
    )


@pytest.mark.parametrize("module", ["cyclopts", "corral.cli.exec", "corral.app", "corral.config"])
@pytest.mark.parametrize("command", [("exec", "--", "true"), ("run", "a task")])
def test_an_interrupt_while_a_run_is_loaded_ends_it(tmp_path: Path, module: str, command: tuple[str, ...]) -> None:
    done = start(tmp_path, module.replace("exec", command[0]), *command)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
    assert not (tmp_path / "data").exists()


_TELL = """
import signal
from corral.cli import main, start
main.main = lambda: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
start.main()
"""


@pytest.mark.parametrize(("command", "is_error"), [("apply", True), ("demo", True), ("exec", False), ("run", False)])
def test_other_commands_hear_of_it_as_an_error(command: str, is_error: bool) -> None:
    """What they have begun they clean up."""
    done = subprocess.run([sys.executable, "-c", _TELL, command], capture_output=True, text=True, preexec_fn=_hear)
    assert (done.stdout, done.stderr) == (f"{is_error}\n", "")


def test_who_starts_it_deaf_keeps_it_deaf(tmp_path: Path) -> None:
    done = start(tmp_path, "corral.app", "exec", "--", "true", ignored=True)
    assert (done.returncode, "no container engine answers" in done.stderr) == (125, True)
