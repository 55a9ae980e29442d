from __future__ import annotations

from corral.sandbox.workspace.kernel.mount_table import Mount, MountTable, is_within

TABLE = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
30 27 0:30 / /home/a\040b\134c\012d rw - tmpfs tmpfs rw,size=4k
31 27 0:31 / /home/ab rw - overlay overlay rw,lowerdir=/x\054y:/z,upperdir=/u
32 31 0:32 / /home/ab rw - nfs4 host:/ab rw

broken line
"""


def test_reads_escapes_and_optional_fields() -> None:
    assert MountTable.parse(TABLE).mounts == (
        Mount(b"/proc", "proc", (b"rw",)),
        Mount(b"/", "ext4", (b"rw", b"discard")),
        Mount(b"/home/a b\\c\nd", "tmpfs", (b"rw", b"size=4k")),
        Mount(b"/home/ab", "overlay", (b"rw", b"lowerdir=/x", b"y:/z", b"upperdir=/u")),
        Mount(b"/home/ab", "nfs4", (b"rw",)),
    )


def test_the_later_of_two_mounts_on_one_point_counts() -> None:
    found = MountTable.parse(TABLE).containing(b"/home/ab/c")
    assert found is not None
    assert found.filesystem == "nfs4"


def test_a_mount_point_that_is_a_prefix_only_as_text_is_not_above() -> None:
    found = MountTable.parse(TABLE).containing(b"/home/abc")
    assert found is not None
    assert found.point == b"/"


def test_below_names_each_point_once() -> None:
    assert MountTable.parse(TABLE).below(b"/home") == (b"/home/a b\\c\nd", b"/home/ab")
    assert MountTable.parse(TABLE).below(b"/home/ab") == ()


def test_root_contains_everything() -> None:
    assert is_within(b"/a", b"/")
    assert not is_within(b"/ab", b"/a")


def test_own_table_has_a_root() -> None:
    assert MountTable.load().containing(b"/") is not None
