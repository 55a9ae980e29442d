"""Random trees, random edits through a really mounted overlay: the patch plus the list is the change, exactly.

`git apply` on a clean copy and our own apply both give the box's tree as SPEC E1 defines it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.overlay_box import Operation, Seen, can_mount, describe, make_tree, run_in_overlay

from corral.patch import ChangeSet, apply_patch, build_patch, collect_copy, collect_overlay
from corral.patch.tree import Node
from corral.sandbox.workspace import Packed
from corral.schema.patch import Patch, Reason
from corral_protocol.message import TreeEntry
from corral_protocol.name import decode_name, encode_name

needs_mount = pytest.mark.skipif(not can_mount(), reason="mounting an overlay needs root")

NAMES = ["a", "b", "c d", "\xff\xfe", 'q"\n', "x.ig", ".git", "node_modules", "f.txt", ":(top)"]
CONTENT = [
    "",
    "one\n",
    "one",
    "a\r\nb\r\n",
    "".join(f"line {n}\n" for n in range(40)),
    "".join(f"line {n}\n" for n in range(40)).replace("line 7", "LINE 7"),
    "\0binary\xff" * 20,
    "\xe9 latin\n",
]
IGNORE = ["", "*.ig\n", "b/\n", "/a\n!a\n", "*\n!*/\n!f.txt\n", "a/b\n"]
RESIDUE = {Reason.MODE_BITS, Reason.XATTR}

# Few names, so that edits meet each other and the original; odd ones among them.
USUAL = ["a", "a/a", "a/b", "a/b/a", "a/b/b", "b", "b/a", "b/x.ig", "f.txt", "a/f.txt"]
START: list[Operation] = [
    ("write", "a/a", CONTENT[4]),
    ("write", "a/b/a", CONTENT[1]),
    ("write", "a/b/b", CONTENT[6]),
    ("write", "b/a", CONTENT[5]),
    ("write", "b/x.ig", CONTENT[2]),
    ("link", "f.txt", "b/a"),
    ("symlink", "ln", "a/b"),
]

odd_paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
paths = st.one_of(st.sampled_from(USUAL), st.sampled_from(USUAL), odd_paths)
content = st.sampled_from(CONTENT)
operations = st.one_of(
    st.tuples(st.just("write"), paths, content),
    st.tuples(st.just("append"), paths, st.sampled_from(["more\n", "\0"])),
    st.tuples(st.just("remove"), paths),
    st.tuples(st.just("empty"), paths),
    st.tuples(st.just("renew"), paths, paths, content),
    st.tuples(st.just("move"), paths, paths),
    st.tuples(st.just("mkdir"), paths),
    st.tuples(st.just("symlink"), paths, st.sampled_from(["a", "../b", "/etc", "c d/x.ig"])),
    st.tuples(st.just("link"), paths, paths),
    st.tuples(st.just("chmod"), paths, st.sampled_from(["644", "755", "600", "4755", "444"])),
    st.tuples(st.just("touch"), paths),
    st.tuples(st.just("fifo"), paths),
    st.tuples(st.just("xattr"), paths),
)
programs = st.lists(operations, max_size=9)
originals = st.one_of(st.just(START), programs.map(lambda program: START + program), programs)


@needs_mount
@pytest.mark.parametrize("examples", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_patch_and_list_are_the_change(examples: int) -> None:
    rule = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    rule(given(original=originals, ignore=st.sampled_from(IGNORE), edits=programs)(check_round_trip))()


def check_round_trip(original: list[Operation], ignore: str, edits: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        lower = base / "lower"
        before = make_tree(lower, [*original, ("write", ".gitignore", ignore)])
        time.sleep(0.012)  # the file system's clock moves on: what is there now is older than the start
        started_ns = time.clock_gettime_ns(5)
        after = run_in_overlay(base, lower, edits)

        changes = collect_overlay(lower, base / "upper", started_ns=started_ns, work=base / "work")
        patch = build_patch(changes, base / "patch.diff")

        data = (base / "patch.diff").read_bytes()
        by_git = applied(base, lower, "by-git", lambda tree: git_apply(tree, base / "patch.diff"))
        by_us = applied(
            base, lower, "by-us", lambda tree: apply_patch(data, tree, is_approved=True, allow_leaving_links=True)
        )
        assert as_git_sees(by_us) == as_git_sees(by_git)
        check_list(patch, before, after, by_us)
        if all(seen.kind != "special" and seen.mode <= 0o777 for seen in before.values()):  # a copy holds no others
            assert told(by_copy(base, lower, before, after)) == told(changes)


def applied(base: Path, lower: Path, name: str, apply: Callable[[Path], object]) -> dict[bytes, Seen]:
    tree = base / name
    subprocess.run(["cp", "-a", str(lower), str(tree)], check=True)
    apply(tree)
    return describe(os.fsencode(tree))


def git_apply(tree: Path, patch: Path) -> None:
    if patch.stat().st_size == 0:
        return
    environment = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(tree.parent), "HOME": str(tree.parent)}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_DIR": str(tree.parent / "none")}
    subprocess.run(["git", "apply", "--whitespace=nowarn", str(patch)], cwd=tree, env=environment, check=True)


def as_git_sees(tree: dict[bytes, Seen]) -> dict[bytes, Seen]:
    return {path: git_view(seen) for path, seen in tree.items()}


def git_view(seen: Seen) -> Seen:
    mode = {"file": 0o755 if seen.mode & 0o100 else 0o644, "symlink": 0o777}.get(seen.kind, 0)
    return Seen(seen.kind, mode, seen.content)


def check_list(patch: Patch, before: dict[bytes, Seen], after: dict[bytes, Seen], result: dict[bytes, Seen]) -> None:
    listed = [(decode_name(one.path), one.reason) for one in patch.not_exported]
    for path in sorted(before.keys() | after.keys() | result.keys()):
        want, have = after.get(path), result.get(path)
        same = (want and git_view(want)) == (have and git_view(have))
        assert same or is_told(path, listed, want, have), (path, want, have)
        old = before.get(path)
        if old and want and same and old.kind == want.kind and git_view(old) == git_view(want) and old != want:
            assert any(where in (path, path + b"/") or path.startswith(where) for where, _ in listed), path
    for file in patch.files:
        path = decode_name(file.path)
        assert before.get(path) != after.get(path), path
    for where, reason in listed:
        differs = [
            path
            for path in before.keys() | after.keys()
            if (path == where.rstrip(b"/") or path.startswith(where.rstrip(b"/") + b"/"))
            and before.get(path) != after.get(path)
        ]
        assert differs or reason in RESIDUE | {Reason.EMPTY_DIRECTORY}, (where, reason)


def is_told(path: bytes, listed: list[tuple[bytes, Reason]], want: Seen | None, have: Seen | None) -> bool:
    """Whether what still differs is in the list: at the path, at a parent as a whole, or, for a directory, below."""
    for where, reason in listed:
        if reason in RESIDUE:
            continue
        if where.rstrip(b"/") == path or (where.endswith(b"/") and path.startswith(where)):
            return True
        if where.startswith(path + b"/") and "dir" in (want and want.kind, have and have.kind):
            return True
    return False


def told(changes: ChangeSet) -> tuple[list[object], set[tuple[str, Reason]]]:
    exported: list[object] = [(one.path, fact(one.before), fact(one.after)) for one in changes.changes]
    return exported, {(one.path, one.reason) for one in changes.not_exported if one.reason is not Reason.XATTR}


def fact(node: Node | None) -> tuple[int, int] | None:
    return None if node is None else (node.git_mode, node.size)


def by_copy(base: Path, lower: Path, before: dict[bytes, Seen], after: dict[bytes, Seen]) -> ChangeSet:
    """The same change, told by manifests instead of an upper directory."""
    staging = base / "staging"
    staging.mkdir()
    sent = [
        Packed(path, seen.kind, seen.mode, len(seen.content), 0, digest(seen), target_of(seen))
        for path, seen in before.items()
    ]

    async def entries() -> AsyncIterator[TreeEntry]:
        for path, seen in after.items():
            kind = "fifo" if seen.kind == "special" else seen.kind
            target = encode_name(target_of(seen))
            yield TreeEntry(encode_name(path), kind, seen.mode, len(seen.content), 0, digest(seen), target)

    async def fetch(path: str, sink: Callable[[memoryview], None]) -> None:
        sink(memoryview(after[decode_name(path)].content))

    return asyncio.run(collect_copy(lower, sent, entries(), fetch, staging, started_ns=1))


def digest(seen: Seen) -> str:
    return hashlib.sha256(seen.content).hexdigest() if seen.kind == "file" else ""


def target_of(seen: Seen) -> bytes:
    return seen.content if seen.kind == "symlink" else b""
