"""`corral` as people start it: a process of its own, with this checkout's code, as this user or as another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOCKET = Path(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://"))
"""Where the engine of these tests listens; no such file for an engine reached over TCP."""

_MAIN = "from corral.cli.start import main; main()"
_PROBE = "import sys, cyclopts, docker, openai, corral.cli.main; print(sys.version_info[:2])"


@dataclass(frozen=True)
class User:
    """Who runs it, and an interpreter that this user may run. None: the one of the tests."""

    uid: int | None = None
    groups: tuple[int, ...] = ()
    python: str = sys.executable
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ran:
    code: int
    out: bytes
    err: list[str]

    @property
    def told(self) -> tuple[int, list[str]]:
        """Exit code, and the error with its hint: all there is to read when nothing was run."""
        return self.code, self.err

    def json(self) -> dict[str, object]:
        """The last line of its output."""
        value: dict[str, object] = json.loads(self.out.splitlines()[-1])
        return value


def corral(
    *arguments: str | bytes, env: dict[str, str] | None = None, cwd: Path | None = None, user: User | None = None
) -> Ran:
    """Run it to its end. Never lets a traceback pass."""
    who = user or User()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "CORRAL_"))}
    done = subprocess.run(
        [who.python, "-c", _MAIN, *arguments],
        env=clean | who.env | (env or {}),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        user=who.uid,
        group=who.uid,
        extra_groups=None if who.uid is None else who.groups,
    )
    err = done.stderr.decode("utf-8", "backslashreplace")
    assert "Traceback" not in err and "a fault in corral" not in err, err
    return Ran(done.returncode, done.stdout, err.splitlines())


def list_outcomes(*, env: dict[str, str] | None = None, user: User | None = None) -> list[object]:
    """How the runs that are kept ended, newest first."""
    return [json.loads(line)["outcome"] for line in corral("runs", "--json", env=env, user=user).out.splitlines()]


def find_user(uid: int, groups: tuple[int, ...], home: Path) -> User:
    """A user who can run this checkout; where none can, the test is skipped and says why."""
    if os.geteuid() != 0:
        pytest.skip("becomes another user: needs root")
    here = Path(sys.base_prefix).resolve()
    code = [path for path in sys.path if path and not Path(path).resolve().is_relative_to(here)]
    env = {"PYTHONPATH": ":".join(code), "HOME": str(home), "USER": f"user{uid}", "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {f"XDG_{kind}_HOME": str(home / f".{kind.lower()}") for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    reasons = []
    for python in dict.fromkeys((sys.executable, f"/usr/bin/python3.{sys.version_info[1]}", "/usr/bin/python3")):
        try:
            done = subprocess.run(
                [python, "-c", _PROBE],
                env={"PATH": os.environ["PATH"]} | env,
                cwd="/",
                capture_output=True,
                text=True,
                user=uid,
                group=uid,
                extra_groups=groups,
            )
        except OSError as error:
            reasons.append(f"{python}: {error.strerror}")
            continue
        if done.stdout.strip() == str(sys.version_info[:2]):
            return User(uid, groups, python, env)
        reasons.append(f"{python}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    pytest.skip(f"another user cannot run this checkout: {'; '.join(reasons)}")
