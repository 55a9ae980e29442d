"""`--keep NAME` and `--from NAME` through the real command: dependencies installed once, used by many runs."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.command import Ran, corral

pytestmark = pytest.mark.docker

Run = Callable[..., Ran]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    (folder / ".gitignore").write_text("deps\n.env\n")
    (folder / ".env").write_text("KEY=1234567890abcdef\n")
    (folder / "old").mkdir()
    (folder / "old/x").write_text("x\n")
    return folder


@pytest.fixture
def run(repo: Path, sandbox_image: str) -> Run:
    def start(script: str, *options: str) -> Ran:
        return corral("exec", "--image", sandbox_image, "-C", str(repo), *options, "--", "sh", "-c", script)

    return start


SETUP = (
    "mkdir -p deps/bin; echo lib > deps/lib; printf '#!/bin/sh\\necho tool' > deps/bin/tool; "
    "chmod 4755 deps/bin/tool; ln deps/lib deps/hard"
)


def test_a_later_box_has_what_an_earlier_one_set_up(home: Path, run: Run, repo: Path) -> None:
    kept = run(SETUP, "--keep", "deps")
    assert (kept.code, "kept as layer deps" in kept.err) == (0, True), kept.err
    used = run("deps/bin/tool; cat deps/lib a.txt; echo changed > deps/lib; echo new > b.txt", "--from", "deps")
    assert (used.code, used.out) == (0, b"tool\nlib\none\n"), used.err
    again = run("cat deps/lib; ls; whoami; stat -c %U deps/lib", "--from", "deps")
    assert again.out == b"lib\na.txt\ndeps\nold\nbox\nbox\n"
    assert sorted(os.listdir(repo)) == [".env", ".gitignore", "a.txt", "old"]
    last = corral("log", "show", "last")
    assert last.code == 0


def test_a_patch_has_what_its_own_run_changed_and_the_rest_is_told(run: Run, repo: Path, home: Path) -> None:
    kept = run("echo two >> a.txt; rm -r old; mkdir deps", "--keep", "base")
    assert kept.code == 0, kept.err
    used = run("cat a.txt; ls; echo three > c.txt", "--from", "base", "--patch", str(home / "p"))
    assert used.out == b"one\ntwo\na.txt\ndeps\n"
    assert "changes the workspace itself (a.txt, old/x)" in "\n".join(used.err), used.err
    assert [line for line in (home / "p").read_text().splitlines() if line.startswith("diff")] == [
        "diff --git a/c.txt b/c.txt"
    ]
    back = run("rm a.txt; ls", "--from", "base", "--patch", str(home / "p"))
    assert back.out == b"deps\n"
    assert "deleted file mode 100644" in (home / "p").read_text()


def test_secrets_stay_masked_and_set_id_bits_go(run: Run, home: Path) -> None:
    run(SETUP + "; cat .env > deps/copy", "--keep", "deps")
    (layer,) = (home / "xdg_data_home/corral/layers/deps").iterdir()
    found = {path.relative_to(layer / "tree").as_posix(): path.lstat() for path in (layer / "tree").rglob("*")}
    assert set(found) == {"deps", "deps/bin", "deps/bin/tool", "deps/copy", "deps/hard", "deps/lib"}
    assert stat.S_IMODE(found["deps/bin/tool"].st_mode) == 0o755
    assert {one.st_uid for one in found.values()} == {os.geteuid()}
    assert found["deps/hard"].st_ino == found["deps/lib"].st_ino
    assert "1234567890" not in (layer / "tree/deps/copy").read_text()


def test_a_command_that_fails_keeps_nothing(run: Run, home: Path) -> None:
    ran = run("mkdir deps; exit 3", "--keep", "deps")
    assert (ran.code, "layer deps was not kept: the command failed" in ran.err) == (3, True)
    missing = run("true", "--from", "deps")
    assert (missing.code, missing.err[0]) == (2, "corral: there is no layer 'deps'")


def test_a_name_is_kept_anew_listed_and_removed(run: Run, home: Path) -> None:
    for word in ("first", "second"):
        run(f"mkdir deps; echo {word} > deps/w", "--keep", "deps")
    assert run("cat deps/w", "--from", "deps").out == b"second\n"
    (line,) = corral("layers", "--json").out.splitlines()
    facts = json.loads(line)
    assert (facts["layer"], facts["mount_point"], facts["exported"]) == ("deps", "/workspace", [])
    assert len(list((home / "xdg_data_home/corral/layers/deps").iterdir())) == 1
    assert corral("layers", "rm", "deps").code == 0
    assert corral("layers", "--json").out == b""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--keep", "../x"), "is no name of a layer"),
        (("--keep", "a", "--from", "b"), "do not go together"),
        (("--keep", "a", "--mode", "copy"), "needs the workspace as an overlay"),
    ],
)
def test_what_cannot_be_is_told(run: Run, options: tuple[str, ...], message: str, home: Path) -> None:
    ran = run("true", *options)
    assert (ran.code, message in ran.err[0]) == (2, True), ran.err
