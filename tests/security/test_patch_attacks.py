"""Attacks on the host through the export of a run and through a patch, each by its name."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.unit.patch.box import Box, changed, listed, make_box, make_opaque, put, whiteout

from corral.errors import PatchConflict, PatchError, PatchInvalid, SandboxProtocolError
from corral.patch import apply_patch, apply_plan, check_patch, collect_copy, plan_apply
from corral.patch.name import refuse_reason
from corral.schema.patch import Reason
from corral_protocol.message import TreeEntry


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return make_box(tmp_path)


def new_file(name: bytes, mode: bytes = b"100644", content: bytes = b"evil") -> bytes:
    """A crafted patch that makes one file; the name goes in as it is."""
    return b"diff --git a/%(n)s b/%(n)s\nnew file mode %(m)s\n--- /dev/null\n+++ b/%(n)s\n@@ -0,0 +1 @@\n+%(c)s\n" % {
        b"n": name,
        b"m": mode,
        b"c": content,
    }


UNSAFE = [
    b"../evil",
    b"a/../../evil",
    b".git/hooks/pre-commit",
    b".GIT/config",
    b"sub/.git/config",
    b"sub/.Git/config",
    b".git./config",
    b".git /config",
    b"git~1/config",
    b"GIT~1/config",
    b".git::$INDEX_ALLOCATION/config",
    b".g\xe2\x80\x8cit/config",
    b"a\\.git\\config",
    b"/etc/passwd",
    b"a//b",
    b"./a",
    b"a/./b",
]


@pytest.mark.parametrize("name", UNSAFE)
def test_blocks_paths_that_leave_the_tree(box: Box, name: bytes) -> None:
    for data in (
        new_file(name, b"100755"),
        b"--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+evil\n" % name,
        b"--- a/%s\n+++ /dev/null\n@@ -1 +0,0 @@\n-evil\n" % name,
        b"diff --git a/x b/%s\nsimilarity index 100%%\nrename from x\nrename to %s\n" % (name, name),
        b'diff --git "a/%(n)s" "b/%(n)s"\nnew file mode 100644\n--- /dev/null\n+++ "b/%(n)s"\n@@ -0,0 +1 @@\n+evil\n'
        % {b"n": name.replace(b"\\", b"\\\\").replace(b".", b"\\056")},
    ):
        put(box.workspace, "x", b"x\n")
        with pytest.raises(PatchInvalid):
            apply_patch(data, box.workspace, is_approved=True, allow_leaving_links=True)
        with pytest.raises(PatchInvalid):
            check_patch(data)
    assert sorted(path.name for path in box.base.rglob("*")) == ["upper", "workspace", "x"]


@pytest.mark.parametrize("name", [b"/abs", b"abs"])
def test_blocks_names_without_a_prefix(box: Box, name: bytes) -> None:
    with pytest.raises(PatchInvalid):
        apply_patch(b"--- /dev/null\n+++ %s\n@@ -0,0 +1 @@\n+evil\n" % name, box.workspace)


@pytest.mark.parametrize("name", [n for n in UNSAFE if b"git" in n.lower() or b"g\xe2" in n])
def test_blocks_git_lookalikes(name: bytes) -> None:
    assert refuse_reason(name) == "path into .git"


def test_takes_names_that_only_begin_alike() -> None:
    for name in (b".gitignore", b".github/x", b"git", b"git~2", b".gitlab-ci.yml", b"a.git", b".git2/x"):
        assert refuse_reason(name) is None


def test_blocks_gitmodules_as_a_symlink(box: Box) -> None:
    with pytest.raises(PatchInvalid, match="gitmodules"):
        apply_patch(new_file(b".gitmodules", b"120000"), box.workspace)


@pytest.mark.parametrize("target", [b"/etc/cron.d", b"../../.ssh/authorized_keys", b"a/../../x"])
def test_blocks_symlink_that_leaves_the_workspace(box: Box, target: bytes) -> None:
    with pytest.raises(PatchError) as caught:
        apply_patch(new_file(b"out", b"120000", target), box.workspace, is_approved=True)
    assert (caught.value.code, os.listdir(box.workspace)) == ("patch_blocked", [])


def test_a_leaving_link_is_told_once(box: Box) -> None:
    with plan_apply(new_file(b"out", b"120000", b"/etc/cron.d"), box.workspace) as plan:
        assert [(one.kind, one.path) for one in plan.findings] == [("link_leaves", "out")]


def test_blocks_a_link_that_leaves_by_being_moved(box: Box) -> None:
    """The link's text stays, but one level up it points outside."""
    (box.workspace / "d/e").mkdir(parents=True)
    (box.workspace / "d/e/link").symlink_to("../../x")
    (box.workspace / "link").parent.mkdir(exist_ok=True)
    data = b"diff --git a/d/e/link b/link\nsimilarity index 100%\nrename from d/e/link\nrename to link\n"
    with pytest.raises(PatchError) as caught:
        apply_patch(data, box.workspace, is_approved=True)
    assert caught.value.code == "patch_blocked"


def test_blocks_writing_through_a_symlink(box: Box, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    put(outside, "victim", b"1\n")
    (box.workspace / "link").symlink_to(outside)
    edit = b"--- a/link/victim\n+++ b/link/victim\n@@ -1 +1 @@\n-1\n+2\n"
    for data in (new_file(b"link/evil"), edit):
        with pytest.raises(PatchConflict):
            apply_patch(data, box.workspace)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"victim": b"1\n"}


def test_blocks_planting_a_link_and_writing_through_it_in_one_patch(box: Box, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    data = new_file(b"link", b"120000", os.fsencode(outside)) + new_file(b"link/evil")
    with pytest.raises(PatchInvalid, match="both as a file and as a directory"):
        apply_patch(data, box.workspace, is_approved=True, allow_leaving_links=True)
    assert list(outside.iterdir()) == []


def test_blocks_a_parent_swapped_for_a_link_after_the_plan(box: Box, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (box.workspace / "d").mkdir()
    with plan_apply(new_file(b"d/evil"), box.workspace) as plan:
        (box.workspace / "d").rmdir()
        (box.workspace / "d").symlink_to(outside)
        with pytest.raises(PatchError):
            apply_plan(plan)
    assert list(outside.iterdir()) == []
    assert os.listdir(box.workspace) == ["d"]


def test_never_overwrites_a_new_file(box: Box) -> None:
    with plan_apply(new_file(b"f"), box.workspace) as plan:
        put(box.workspace, "f", b"user")
        with pytest.raises(PatchConflict):
            apply_plan(plan)
    assert (box.workspace / "f").read_bytes() == b"user"


@pytest.mark.parametrize(
    "data",
    [
        # The hunk counts hide a second file's header, or show one that is content.
        b"--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+TWO\ndiff --git a/x b/x\n",
        b"diff --git a/a b/a\n--- a/a\n+++ b/b\n@@ -1 +1 @@\n-1\n+2\n",
        b"diff --git a/a b/a\nrename from a\n",
        b"diff --git a/a b/b\nsimilarity index 100%\ncopy from a\ncopy to b\n",
        b"diff --git a/a b/a\nold mode 100644\nnew mode 104755\n",
        b"diff --git a/a b/a\nold mode 100644\nnew mode 160000\n",
        b"diff --git a/a b/a\nnew file mode 100644\ndeleted file mode 100644\n",
        b"diff --git a/a b/a\nold mode 100644\nnew mode 120000\n",
        b"@@ -1 +1 @@\n-1\n+2\n",
        b"GIT binary patch\nliteral 1\nIcmZ\n\n",
        b"diff --git a/a b/a\nBinary files a/a and b/a differ\n",
        b"nothing of a patch\n",
    ],
)
def test_blocks_a_patch_that_git_reads_differently(box: Box, data: bytes) -> None:
    put(box.workspace, "a", b"1\n2\n3\n")
    with pytest.raises((PatchInvalid, PatchConflict)):
        apply_patch(data, box.workspace, is_approved=True)
    assert {path.name: path.read_bytes() for path in box.workspace.iterdir()} == {"a": b"1\n2\n3\n"}


def test_content_that_looks_like_headers_is_content(box: Box) -> None:
    text = b"diff --git a/x b/../evil\n--- a/x\n+++ b/../evil\n@@ -0,0 +1 @@\n+evil\n"
    put(box.workspace, "doc", b"old\n")
    put(box.upper, "doc", text)
    box.export()
    apply_patch(box.patch_file.read_bytes(), box.workspace)
    assert (box.workspace / "doc").read_bytes() == text


def test_never_follows_links_in_the_upper(box: Box, tmp_path: Path) -> None:
    put(tmp_path, "secret/id_rsa", b"host secret\n")
    put(box.workspace, "d/id_rsa", b"harmless\n")
    put(box.workspace, "f", b"harmless\n")
    (box.upper / "d").symlink_to(tmp_path / "secret")
    (box.upper / "f").symlink_to(tmp_path / "secret/id_rsa")
    (box.upper / "new").symlink_to(tmp_path / "secret")
    patch = box.export()
    assert changed(patch) == {b"d": "added", b"d/id_rsa": "deleted", b"f": "retyped", b"new": "added"}
    assert b"host secret" not in box.patch_file.read_bytes()


def test_never_runs_what_the_workspace_configures(box: Box, tmp_path: Path) -> None:
    """fsmonitor, filters, hooks, textconv and external diffs of an untrusted repository, on export and on apply."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    proof = tmp_path / "PWN"
    subprocess.run(["git", "init", "-q"], cwd=box.workspace, env=environment, check=True)
    for key in (
        "core.fsmonitor",
        "core.editor",
        "core.pager",
        "core.sshCommand",
        "diff.external",
        "diff.x.textconv",
        "diff.x.command",
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "merge.x.driver",
    ):
        command = ["git", "config", key, f"touch {proof}; cat"]
        subprocess.run(command, cwd=box.workspace, env=environment, check=True)
    put(box.workspace, ".git/hooks/post-checkout", f"#!/bin/sh\ntouch {proof}\n".encode(), 0o755)
    put(box.workspace, ".gitattributes", b"* filter=x diff=x merge=x\n")
    put(box.workspace, ".git/info/attributes", b"* filter=x diff=x merge=x\n")
    put(box.workspace, ".gitignore", b"*.log\n")
    put(box.workspace, "a.txt", b"1\n")
    put(box.upper, "a.txt", b"2\n")
    put(box.upper, "b.txt", b"2\n")
    put(box.upper, ".gitattributes", b"*.txt filter=x diff=x merge=x text eol=crlf\n")
    box.export()
    apply_patch(box.patch_file.read_bytes(), box.workspace, is_approved=True)
    assert not proof.exists()
    assert ((box.workspace / "a.txt").read_bytes(), (box.workspace / "b.txt").read_bytes()) == (b"2\n", b"2\n")


def test_hostile_ignore_rules_cannot_hang_the_export(box: Box) -> None:
    """Stars that backtrack without end: git's matcher is another process, and it is ended."""
    put(box.workspace, ".gitignore", b"*a" * 60 + b"b\n" + b"**/" * 40 + b"c\n")
    put(box.upper, "/".join(["a" * 20] * 20), b"x")
    begun = time.monotonic()
    with pytest.raises(PatchError, match="ignore rules take too long") as caught:
        box.export()
    assert time.monotonic() - begun < 30
    assert caught.value.hint is not None and "--include-ignored" in caught.value.hint
    assert len(changed(box.export(include_ignored=True))) == 1


def test_odd_ignore_files_are_read_only_in_part(box: Box) -> None:
    put(box.workspace, ".gitignore", b"*.log\n" + b"[" * 500 + b"\n\xff\n" + b"x" * (2 << 20) + b"\n*.py\n")
    put(box.upper, "a.py", b"x")
    put(box.upper, "a.log", b"x")
    patch = box.export()
    assert (changed(patch), listed(patch)) == ({b"a.py": "added"}, {b"a.log": Reason.IGNORED})


def test_fifos_and_devices_cannot_hang_the_export(box: Box) -> None:
    os.mkfifo(box.upper / ".gitignore")
    os.mkfifo(box.workspace / ".gitignore")
    os.mkfifo(box.upper / "pipe")
    make_opaque(box.upper, "d")
    os.mkfifo(box.upper / "d/pipe")
    whiteout(box.upper, "nothing")
    assert set(listed(box.export()).values()) == {Reason.SPECIAL_FILE}


def test_a_hostile_git_file_is_not_followed(box: Box, tmp_path: Path) -> None:
    put(tmp_path, "elsewhere/index", b"DIRC")
    (box.workspace / ".git").symlink_to(tmp_path / "elsewhere")
    put(box.workspace, ".gitignore", b"*.log\n")
    put(box.upper, "a.log", b"x")
    assert listed(box.export()) == {b"a.log": Reason.IGNORED}


def claim(path: str, kind: str = "file", content: bytes = b"", size: int | None = None) -> TreeEntry:
    import hashlib

    digest = hashlib.sha256(content).hexdigest() if kind == "file" else ""
    return TreeEntry(path, kind, 0o644, len(content) if size is None else size, 0, digest)


def collect(box: Box, entries: list[TreeEntry], sent: bytes = b"") -> object:
    async def listing() -> AsyncIterator[TreeEntry]:
        for entry in entries:
            yield entry

    async def fetch(path: str, sink: Callable[[memoryview], None]) -> None:
        sink(memoryview(sent))

    staging = box.base / "staging"
    staging.mkdir()
    return asyncio.run(collect_copy(box.workspace, [], listing(), fetch, staging, started_ns=1))


@pytest.mark.parametrize("path", ["../evil", "/abs", "a/../b", "", "a//b", ".", "\0!!", "a\0b"])
def test_blocks_manifest_names_that_leave_the_tree(box: Box, path: str) -> None:
    with pytest.raises(SandboxProtocolError):
        collect(box, [claim(path)])


@pytest.mark.parametrize("sent", [b"", b"short", b"longer than what was listed", b"exactly10!"])
def test_blocks_a_box_that_sends_other_bytes_than_it_listed(box: Box, sent: bytes) -> None:
    with pytest.raises(SandboxProtocolError):
        collect(box, [claim("f", content=b"ten bytes!")], sent)


def test_blocks_a_box_that_lists_a_name_twice(box: Box) -> None:
    with pytest.raises(SandboxProtocolError, match="twice"):
        collect(box, [claim("f"), claim("f")])


def test_blocks_impossible_sizes(box: Box) -> None:
    with pytest.raises(SandboxProtocolError):
        collect(box, [claim("f", size=-1)])
