"""Over random forests of links, a path leads to where the kernel would lead inside the roots, or is refused."""

from __future__ import annotations

import os
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from corral_protocol.error import WireError
from corral_toolbox.files import FileEnv
from corral_toolbox.files.resolve import resolve

NAMES = ["a", "b", "c", "f"]
PART = st.sampled_from([*NAMES, "..", ".", "a", "b", ""])
RELATIVE = st.lists(PART, min_size=1, max_size=5).map("/".join)
TARGET = st.one_of(
    RELATIVE,
    RELATIVE.map(lambda path: "{root}/" + path),
    st.sampled_from(
        ["/etc/passwd", "/", "{outside}", "{outside}/f", "../outside/f", "/proc/self/root", "{root}/../outside"]
    ),
)
FOREST = st.lists(
    st.tuples(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join), st.none() | TARGET), max_size=12
)


def build(root: str, outside: str, forest: list[tuple[str, str | None]]) -> None:
    for path, target in forest:
        full = os.path.join(root, path)
        try:
            parent = os.path.dirname(full)
            if os.path.realpath(parent) != parent:
                continue  # the builder itself must not follow links
            os.makedirs(parent, exist_ok=True)
            if target is None:
                with open(full, "x") as file:
                    file.write("inside")
            else:
                os.symlink(target.format(root=root, outside=outside).replace("//", "/"), full)
        except OSError:
            pass


@settings(max_examples=400, deadline=None)
@given(forest=FOREST, path=TARGET | RELATIVE)
def test_nothing_outside_the_roots_is_reached(forest: list[tuple[str, str | None]], path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, outside = os.path.join(folder, "ws"), os.path.join(folder, "outside")
        os.mkdir(root)
        os.mkdir(outside)
        with open(os.path.join(outside, "f"), "w") as file:
            file.write("outside")
        build(root, outside, forest)
        env = FileEnv(os.fsencode(root), [(os.fsencode(root), True)])
        asked = path.format(root=root, outside=outside)
        try:
            place = resolve(env, os.fsencode(asked))
        except (WireError, OSError):
            return
        with place:
            reached = os.path.realpath(f"/proc/self/fd/{place.parent_fd}")
            assert reached == root or reached.startswith(root + "/")
            if place.stat is not None:
                # What the kernel finds by the same path is the same file.
                here = os.stat(place.name, dir_fd=place.parent_fd, follow_symlinks=False)
                kernel = os.stat(os.path.join(root, asked))
                assert (here.st_dev, here.st_ino) == (kernel.st_dev, kernel.st_ino)
                assert os.path.realpath(os.fsdecode(place.path)) == os.fsdecode(place.path)
