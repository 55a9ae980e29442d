"""Why a command failed, as counters and status prove it: never guessed from an exit code or a text."""

from __future__ import annotations

from corral_protocol.message import ExecResult, ExecStatus


def find_cause(result: ExecResult) -> str:
    """`timeout`, `oom`, `pids_exhausted`, `disk_full` or `killed`; "" where nothing proves one."""
    if result.status is ExecStatus.TIMEOUT:
        return "timeout"
    if result.oom_kills:
        return "oom"
    if result.pids_refused:
        return "pids_exhausted"
    if result.full:
        return "disk_full"
    return "killed" if result.status is ExecStatus.KILLED else ""
