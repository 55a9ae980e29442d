"""The bytes of the patch: git's own, the same whatever git is configured to do."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.unit.patch.box import Box, changed, make_box, put, whiteout

from corral.errors import PatchError
from corral.patch import ExportLimits, build_patch
from corral.schema.patch import Action, FileChange


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return make_box(tmp_path)


def apply_with_git(box: Box) -> Path:
    tree = box.base / "clean"
    subprocess.run(["cp", "-a", box.workspace, tree], check=True)
    environment = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(box.base), "HOME": str(box.base)}
    subprocess.run(["git", "apply", box.patch_file], cwd=tree, env=environment, check=True)
    return tree


def test_tells_each_file_with_counts(box: Box) -> None:
    put(box.workspace, "text", b"a\nb\n")
    put(box.workspace, "old name", b"".join(b"line %d\n" % n for n in range(30)))
    put(box.upper, "text", b"a\nB\nc\n")
    whiteout(box.upper, "old name")
    put(box.upper, "new name", b"".join(b"line %d\n" % n for n in range(30)) + b"more\n")
    put(box.upper, "i.png", b"\0\1\2" * 700)
    patch = box.export()
    facts = [file.model_dump(exclude={"old_blob", "new_blob"}) for file in patch.files]
    expected = [
        FileChange(path="i.png", action=Action.ADDED, new_mode="100644", binary=True),
        FileChange(
            path="new name", action=Action.RENAMED, old_path="old name", old_mode="100644", new_mode="100644", added=1
        ),
        FileChange(path="text", action=Action.MODIFIED, old_mode="100644", new_mode="100644", added=2, removed=1),
    ]
    assert facts == [file.model_dump(exclude={"old_blob", "new_blob"}) for file in expected]
    assert (patch.added, patch.removed) == (3, 1)
    assert patch.size == len(box.patch_file.read_bytes())


def test_nothing_changed_is_an_empty_patch(box: Box) -> None:
    patch = box.export()
    assert (patch.files, patch.size, box.patch_file.read_bytes()) == ((), 0, b"")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b"x\n\n"),
        (None, b""),
        (b"a\r\nb\r\n", b"a\r\nB\r\n"),
        (b"no newline", b"no newline at all"),
        (b"a\n\n\nb\n", b"a\n\n\nB\n"),
        (b"\0\1\2", b"\0\1\3"),
        (b"\xff\xfe latin \xe9\n", b"\xff\xfe latin \xe8\n"),
    ],
)
def test_survives_json_and_applies_byte_for_byte(box: Box, before: bytes | None, after: bytes) -> None:
    if before is not None:
        put(box.workspace, "f", before)
    put(box.upper, "f", after)
    box.export()
    data = box.patch_file.read_bytes()
    stored = json.loads(json.dumps(data.decode("utf-8", "surrogateescape"))).encode("utf-8", "surrogateescape")
    assert stored == data
    assert data.endswith(b"\n")
    assert (apply_with_git(box) / "f").read_bytes() == after


@pytest.mark.parametrize(
    "name", ["docs/排.md".encode(), b'a"q.txt', b"t\tab", b"new\nline", b"\xff\xfe", b" lead", b"-x"]
)
def test_odd_names_apply_and_are_told_as_they_are(box: Box, name: bytes) -> None:
    put(box.workspace, name, b"1\n")
    put(box.upper, name, b"2\n")
    assert changed(box.export()) == {name: "modified"}
    tree = os.fsencode(apply_with_git(box))
    with open(os.path.join(tree, name), "rb") as stream:
        assert stream.read() == b"2\n"


def test_ignores_user_git_settings(box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(box.workspace, "a", b"".join(b"%d\n" % n for n in range(20)))
    put(box.upper, "a", b"".join(b"%d\n" % n for n in range(20) if n != 9))
    put(box.upper, "docs/排.md", b"x\n")
    plain = box.export()
    settings = tmp_path / "home/.gitconfig"
    put(
        tmp_path,
        "home/.gitconfig",
        b"[diff]\nnoprefix=true\nmnemonicPrefix=true\ncontext=0\nrenames=copies\nexternal=/bin/false\n"
        b"[color]\nui=always\n[core]\nquotePath=true\nattributesFile=/nonexistent\nautocrlf=true\n",
    )
    for key, value in {
        "HOME": str(settings.parent),
        "XDG_CONFIG_HOME": str(settings.parent),
        "GIT_CONFIG_GLOBAL": str(settings),
        "GIT_DIFF_OPTS": "-u0",
        "GIT_EXTERNAL_DIFF": "/bin/false",
        "GIT_DIR": "/nonexistent",
        "GIT_WORK_TREE": "/nonexistent",
        "GIT_INDEX_FILE": "/nonexistent",
        "GIT_OBJECT_DIRECTORY": "/nonexistent",
        "GIT_NAMESPACE": "x",
    }.items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(box.workspace)
    assert box.export() == plain


def test_the_workspace_is_never_touched(box: Box) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    subprocess.run(["git", "init", "-q"], cwd=box.workspace, env=environment, check=True)
    put(box.workspace, "a", b"1\n")
    subprocess.run(["git", "add", "a"], cwd=box.workspace, env=environment, check=True)
    before = {path: path.stat().st_mtime_ns for path in box.workspace.rglob("*")}
    put(box.upper, "a", b"2\n")
    box.export()
    assert {path: path.stat().st_mtime_ns for path in box.workspace.rglob("*")} == before


def test_a_patch_over_its_limit_is_refused_with_numbers(box: Box) -> None:
    put(box.upper, "big", os.urandom(50_000))
    with pytest.raises(PatchError, match="larger than 10,000 bytes"):
        build_patch(box.collect(), box.patch_file, limits=ExportLimits(max_patch_bytes=10_000))
    assert not list(box.base.glob("patch.diff*"))


def test_a_million_lines_go_through_files(box: Box) -> None:
    put(box.upper, "big.txt", b"".join(b"%d\n" % n for n in range(1_000_000)))
    patch = box.export()
    assert (patch.added, patch.size == box.patch_file.stat().st_size) == (1_000_000, True)


def test_line_ends_and_filters_of_the_workspace_mean_nothing(box: Box) -> None:
    put(
        box.workspace,
        ".gitattributes",
        b"* text=auto eol=crlf\n*.txt filter=lfs diff=lfs merge=lfs -text\n*.png filter=lfs\n",
    )
    put(box.workspace, "a.png", b"\x89PNG\0real content")
    put(box.workspace, "b.py", b"1\n")
    put(box.upper, "b.py", b"2\n")
    assert changed(box.export()) == {b"b.py": "modified"}
    put(box.upper, "a.png", b"\x89PNG\0other content")
    assert changed(box.export()) == {b"a.png": "modified", b"b.py": "modified"}
    assert (apply_with_git(box) / "a.png").read_bytes() == b"\x89PNG\0other content"


def test_kept_objects_hold_both_sides(box: Box) -> None:
    put(box.workspace, "a", b"1\n")
    put(box.upper, "a", b"2\n")
    patch = build_patch(box.collect(), box.patch_file, keep=box.base / "objects")
    for blob, content in ((patch.files[0].old_blob, b"1\n"), (patch.files[0].new_blob, b"2\n")):
        command = ["git", "--git-dir", str(box.base / "objects/git"), "cat-file", "blob", str(blob)]
        assert subprocess.run(command, capture_output=True, check=True).stdout == content
