"""Ids that are lent: where the kernel has file-system ids nothing else is ever changed, refusals included."""

from __future__ import annotations

import os

import pytest

from corral_toolbox.kernel import syscall


def test_a_kernel_with_file_system_ids_lends_nothing_else() -> None:
    """An id it does not take (-1) is refused, and the effective ids, the way of gVisor, are not tried."""
    before = os.getresuid(), os.getresgid()
    assert syscall.has_file_ids()
    with pytest.raises(PermissionError, match="file-system ids are not"):
        syscall.lend_ids(0xFFFFFFFF - 1 if os.geteuid() else 0xFFFFFFFF, 5)
    assert (os.getresuid(), os.getresgid()) == before
    syscall.lend_ids(os.geteuid(), os.getegid())


def test_this_kernel_keeps_orphans_below_their_supervisor() -> None:
    assert syscall.has_subreapers()
