"""The built-in tools, in the order every prompt, page and document shows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from corral.tools.base import Tool, ToolTimeouts
from corral.tools.builtin.change import (
    build_apply_patch,
    build_delete_file,
    build_edit_file,
    build_move_file,
    build_write_file,
)
from corral.tools.builtin.process import build_process
from corral.tools.builtin.read import build_list_files, build_read_file
from corral.tools.builtin.search import build_search
from corral.tools.builtin.session import build_diff, build_finish
from corral.tools.builtin.shell import build_shell
from corral.tools.jobs import JobBook


def build_tools(
    current_diff: Callable[[], Awaitable[str]],
    *,
    timeouts: ToolTimeouts | None = None,
    jobs: JobBook | None = None,
) -> tuple[Tool, ...]:
    """Every built-in tool. `current_diff` gives the workspace's changes so far as a patch text, `jobs`
    keeps those that run on."""
    limits = timeouts or ToolTimeouts()
    return (
        build_shell(limits),
        build_process(jobs or JobBook(), limits),
        build_read_file(limits),
        build_list_files(limits),
        build_search(limits),
        build_edit_file(limits),
        build_write_file(limits),
        build_apply_patch(limits),
        build_move_file(limits),
        build_delete_file(limits),
        build_diff(current_diff, limits),
        build_finish(limits),
    )


__all__ = ["build_tools"]
