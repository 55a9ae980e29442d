"""The image's content and the names that follow from it."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import replace

from corral.resource import find_data
from corral.sandbox.image import expected_tag
from corral.sandbox.image.base import base_key
from corral.sandbox.image.build import find_old_builds
from corral.sandbox.image.context import BuildContext, load_context


def test_the_context_is_the_build_files_and_the_whole_toolbox() -> None:
    names = {name for name, _ in load_context().files}
    toolbox = find_data("toolbox")
    sources = {f"toolbox/{path.relative_to(toolbox)}" for path in toolbox.rglob("*.py")}
    assert names >= {"Dockerfile", "packages.txt", "install.sh", "toolbox/__main__.py"} | sources
    assert not [name for name in names if "__pycache__" in name]


def test_the_same_content_gives_the_same_bytes_and_nothing_of_this_machine() -> None:
    first, second = load_context().archive(), load_context().archive()
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        assert {(entry.uid, entry.gid, entry.uname, entry.mtime, entry.mode) for entry in tar} == {(0, 0, "", 0, 0o644)}


def test_any_changed_byte_gives_another_tag() -> None:
    context = load_context()
    name, body = context.files[-1]
    changed = replace(context, files=(*context.files[:-1], (name, body + b"\n")))
    moved = replace(context, files=(*context.files[:-1], (name + "x", body)))
    assert (
        len({expected_tag(context), expected_tag(changed), expected_tag(moved), expected_tag(context, base="b")}) == 4
    )


def test_names_and_bodies_cannot_be_shifted_into_each_other() -> None:
    assert BuildContext((("a", b"bc"),)).content_hash() != BuildContext((("ab", b"c"),)).content_hash()


def test_the_base_depends_on_packages_and_suite_and_not_on_the_toolbox() -> None:
    context = load_context()
    other_toolbox = replace(context, files=(*context.files, ("toolbox/more.py", b"")))
    fewer = replace(context, files=tuple((n, b"git\n" if n == "packages.txt" else b) for n, b in context.files))
    assert base_key(context, "bookworm") == base_key(other_toolbox, "bookworm")
    assert len({base_key(context, "bookworm"), base_key(context, "trixie"), base_key(fewer, "bookworm")}) == 3


def test_the_dockerfile_needs_no_buildkit() -> None:
    text = dict(load_context().files)["Dockerfile"].decode()
    assert "ARG BASE\nFROM ${BASE}\n" in text
    assert not [word for word in ("# syntax", "--mount", "--chmod", "--link", "<<") if word in text]


def test_the_install_script_is_plain_sh() -> None:
    script = find_data("sandbox-image") / "install.sh"
    assert subprocess.run(["sh", "-n", script], capture_output=True, check=False).stderr == b""


def test_old_builds_go_but_the_newest_three_and_those_of_the_last_day() -> None:
    day = 24 * 3600
    builds = [
        {"Created": 10 * day - age, "RepoTags": [f"corral-sandbox:{age}"]} for age in (day + 3, 5, day - 1, 2 * day, 0)
    ]
    builds.append({"Created": 10 * day - 3 * day, "RepoTags": ["corral-sandbox:latest", "corral-sandbox:old"]})
    builds.append({"Created": 0, "RepoTags": None})
    assert find_old_builds(builds, now_s=10 * day) == [
        f"corral-sandbox:{day + 3}",
        f"corral-sandbox:{2 * day}",
        "corral-sandbox:old",
    ]
