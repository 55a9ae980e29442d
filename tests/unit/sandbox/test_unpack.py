"""Archives of images, honest and hostile, as directories of this machine."""

from __future__ import annotations

import io
import itertools
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.errors import ConfigError, ImageError
from corral.sandbox.foreign.tree import check_place
from corral.sandbox.foreign.unpack import MAX_DEPTH, Unpacked, unpack_tree


def entry(name: str, kind: bytes = tarfile.REGTYPE, **facts: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.mode, made.mtime = kind, 0o644, 1_000_000_000
    for key, value in facts.items():
        setattr(made, key, value)
    return made


TOP = entry("testbed/", tarfile.DIRTYPE, mode=0o755)


def pack(*entries: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for one in entries:
            head, body = one if isinstance(one, tuple) else (one, b"")
            head.size = len(body)
            tar.addfile(head, io.BytesIO(body))
    return buffer.getvalue()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "outside").mkdir()
    (tmp_path / "target").mkdir()
    directory = os.open(tmp_path / "target", os.O_RDONLY | os.O_DIRECTORY)
    yield directory
    os.close(directory)
    assert list((tmp_path / "outside").iterdir()) == []


def chop(data: bytes, size: int) -> Iterator[bytes]:
    return (data[place : place + size] for place in range(0, len(data), size))


@pytest.mark.parametrize("size", [7, 512, 1 << 20])
def test_everything_that_a_tree_can_hold(tmp_path: Path, target: int, size: int) -> None:
    archive = pack(
        TOP,
        (entry("testbed/a", mode=0o4755), b"x" * 5000),
        entry("testbed/d", tarfile.DIRTYPE, mode=0o500),
        (entry("testbed/d/b\udcff"), b"b"),
        entry("testbed/hard", tarfile.LNKTYPE, linkname="testbed/a"),
        entry("testbed/soft", tarfile.SYMTYPE, linkname="/etc/passwd"),
        entry("testbed/fifo", tarfile.FIFOTYPE),
        entry("testbed/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
        (entry("testbed/late/deep/c"), b"c"),
    )
    done = unpack_tree(chop(archive, size), target)
    root = tmp_path / "target"
    found = {os.fsencode(path.relative_to(root)): path.lstat() for path in root.rglob("*")}
    assert set(found) == {b"a", b"d", b"d/b\xff", b"hard", b"soft", b"late", b"late/deep", b"late/deep/c"}
    assert (stat.S_IMODE(found[b"a"].st_mode), found[b"a"].st_ino) == (0o755, found[b"hard"].st_ino)
    assert (stat.S_IMODE(found[b"d"].st_mode), found[b"d"].st_mtime) == (0o700, 1_000_000_000)
    assert (os.readlink(root / "soft"), (root / "a").read_bytes()) == ("/etc/passwd", b"x" * 5000)
    assert (done, {one.st_uid for one in found.values()}) == (Unpacked(8, 5002, 2), {os.geteuid()})


@pytest.mark.parametrize("name", ["testbed/../outside/x", "/testbed/x", "testbed/a/../../../outside/x"])
def test_an_archive_never_leaves_its_directory(target: int, name: str) -> None:
    with pytest.raises(ImageError):
        unpack_tree([pack(TOP, (entry(name), b"x"))], target)


@pytest.mark.parametrize(
    "attack",
    [
        [entry("testbed/l", tarfile.SYMTYPE, linkname="../outside"), (entry("testbed/l/x"), b"x")],
        [entry("testbed/l", tarfile.SYMTYPE, linkname="../outside/x"), (entry("testbed/l"), b"x")],
        [entry("testbed/l", tarfile.SYMTYPE, linkname="../outside"), entry("testbed/l", tarfile.DIRTYPE)],
        [entry("testbed/h", tarfile.LNKTYPE, linkname="testbed/../outside")],
        [entry("testbed/h", tarfile.LNKTYPE, linkname="testbed")],
    ],
    ids=["through a link", "onto a link", "a link as directory", "hard link outside", "hard link to nothing"],
)
def test_an_archive_never_writes_through_a_link(
    target: int, attack: list[tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]]
) -> None:
    with pytest.raises((ImageError, OSError)):
        unpack_tree([pack(TOP, *attack)], target)


@pytest.mark.parametrize("cut", [100, 700, 1500])
def test_a_stream_that_breaks_off_is_an_error(target: int, cut: int) -> None:
    archive = pack(TOP, (entry("testbed/a"), b"x" * 5000))
    with pytest.raises(ImageError):
        unpack_tree([archive[:cut]], target)


def pack_pax(**headers: str) -> bytes:
    """A file with records of an extended header before it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(TOP)
        tar.addfile(entry("testbed/a", pax_headers=headers), io.BytesIO())
    return buffer.getvalue()


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, b"?"])
@pytest.mark.parametrize("size", [5 << 20, 1 << 60, -512])
def test_a_header_has_a_largest_size(target: int, kind: bytes, size: int) -> None:
    """Nothing of it is read: the stream behind it has no end."""
    head = entry("x", kind, size=size).tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(ImageError, match=f"a header of {size} bytes"):
        unpack_tree(itertools.chain([pack(TOP)[:512], head], itertools.repeat(bytes(1 << 20))), target)


@pytest.mark.parametrize("headers", [{"size": "-1"}, {"size": "x" * 5000}, {"path": "testbed/../../outside/x"}])
def test_an_extended_header_may_not_say_everything(target: int, headers: dict[str, str]) -> None:
    try:
        unpack_tree([pack_pax(**headers)], target)
    except ImageError:
        return
    assert os.listdir(target) == ["a"]


def test_headers_before_headers_have_an_end(target: int) -> None:
    head = entry("x", tarfile.XHDTYPE, size=0).tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(ImageError):
        unpack_tree(itertools.chain([pack(TOP)[:512]], itertools.repeat(head)), target)


@pytest.mark.parametrize(
    ("said", "time_s"),
    [("nan", 0), ("inf", 0), ("1e300", 9223372035), ("-1e300", -9223372035), ("12.5", 12)],
)
def test_any_time_is_one_that_a_file_can_have(tmp_path: Path, target: int, said: str, time_s: int) -> None:
    unpack_tree([pack_pax(mtime=said)], target)
    latest = min(time_s, 0x3_7FFF_FFFF)  # of ext4
    assert (tmp_path / "target/a").stat().st_mtime in {time_s, latest, max(time_s, -0x8000_0000)}


def test_a_tree_has_a_largest_depth(target: int) -> None:
    deep = "testbed/" + "d/" * MAX_DEPTH
    unpack_tree([pack(TOP, entry(deep, tarfile.DIRTYPE))], target)
    with pytest.raises(ImageError, match="nested more than"):
        unpack_tree([pack(TOP, entry(f"{deep}d", tarfile.DIRTYPE))], target)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE])
def test_a_file_or_link_is_no_tree(target: int, kind: bytes) -> None:
    with pytest.raises(NotADirectoryError):
        unpack_tree([pack(entry("testbed", kind, linkname="x"))], target)


@pytest.mark.parametrize(
    "place",
    [
        "",
        "x",
        "/",
        "//",
        "/a/../b",
        "/a//b",
        "/a\nb",
        "/etc",
        "/home/x",
        "/tmp/",
        "/opt",
        "/usr",
        "/usr/lib/x",
        "/lib64",
    ],
)
def test_places_that_cannot_be_a_workspace(place: str) -> None:
    with pytest.raises(ConfigError):
        check_place(place)


@pytest.mark.parametrize("place", ["/testbed", "/testbed/", "/opt/app", "/usr/src/app", "/homes"])
def test_places_that_can(place: str) -> None:
    assert check_place(place) == place.rstrip("/")
