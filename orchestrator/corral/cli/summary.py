"""What a run changed, in a few calm lines on stderr."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from corral.agent.run import Outcome
from corral.agent.stop import is_complete
from corral.cli.output import fail, note, paint, plural
from corral.sandbox.base import BoxInfo
from corral.schema.patch import Action, FileChange, Finding, NotExported, Patch, Severity
from corral.schema.path import show_path
from corral.schema.resources import RunResources
from corral.schema.size import show_size
from corral.schema.visible import visible

if TYPE_CHECKING:
    from corral.sandbox.egress import NetworkReport

_SHOWN = 20
_LETTERS = {
    Action.ADDED: "A",
    Action.MODIFIED: "M",
    Action.DELETED: "D",
    Action.RENAMED: "R",
    Action.RETYPED: "T",
    Action.MODE: "M",
}
_COLOURS = {"A": "green", "D": "red"}


def show_end(outcome: Outcome, run_id: str, patch_file: Path | None, *, network: NetworkReport | None = None) -> None:
    """How a run ended, what it changed, and what to do with it."""
    if outcome.box is not None:
        _show_box(outcome.box)
    if outcome.error is not None:
        fail(outcome.error.message, hint=outcome.error.hint, code=0)
    note(f"{paint('corral', 'cyan')} {_headline(outcome)}")
    if outcome.limits_touched:
        note(f"  {paint('limits touched:', 'yellow')} {', '.join(outcome.limits_touched)}")
    if network is not None:
        _show_network(network)
    if outcome.box is not None:
        note(paint(f"  used {describe_resources(outcome.resources)}", "dim"))
    # After a failure, no patch does not mean that nothing changed.
    if outcome.box is not None and (outcome.patch is not None or outcome.error is None):
        show_patch(outcome.patch)
    if patch_file is not None:
        note(f"  patch: {patch_file}")
        note(f"  apply: corral apply {run_id}")


def _show_network(network: NetworkReport) -> None:
    traffic = f" ({show_size(network.bytes_in)} in, {show_size(network.bytes_out)} out)"
    for words, hosts, colour in (("reached", network.reached, ""), ("refused", network.refused, "yellow")):
        if hosts:
            names = ", ".join(f"{visible(name)}{f' x{count}' if count > 1 else ''}" for name, count in hosts[:_SHOWN])
            more = f", and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
            mark = paint(words, colour) if colour else words
            note(f"  {mark} {names}{more}{traffic if words == 'reached' else ''}")


def describe_resources(used: RunResources) -> str:
    """What a run used, in one line; the box's part is the box's word."""
    own = used.orchestrator
    ours = f"corral itself {own.user_s + own.system_s:.1f} s of cpu"
    if used.box is None:
        return ours
    box = used.box
    parts = [
        f"{box.user_s + box.system_s:.1f} s of cpu ({box.user_s:.1f} user, {box.system_s:.1f} system)",
        f"{show_size(box.memory_peak_bytes)} of memory",
        f"{box.programs} process{'' if box.programs == 1 else 'es'}" if box.programs else "",
        f"{show_size(box.written_bytes)} written" if box.written_bytes else "",
        ours,
    ]
    return ", ".join(part for part in parts if part)


def _headline(outcome: Outcome) -> str:
    # An error has been told in full above.
    summary = "" if outcome.error else visible(outcome.ending.summary, limit=200)
    parts = [f"{summary or outcome.ending.reason.value} in {outcome.duration_s:.1f} s"]
    if outcome.box is not None:
        parts += [f"box ready in {outcome.box.start_s:.1f} s", outcome.box.mode.value]
    if not is_complete(outcome.ending.reason) and outcome.patch and outcome.patch.files:
        parts.append(paint("the patch is incomplete", "yellow"))
    return " · ".join(parts)


def _show_box(box: BoxInfo) -> None:
    if box.mode_reason:
        note(f"{paint('corral', 'cyan')} the workspace was copied: {visible(box.mode_reason)}")
    for warning in box.warnings:
        note(f"{paint('corral', 'cyan')} {paint('warning:', 'yellow')} {visible(warning)}")
    if box.masked:
        names = ", ".join(visible(one.path) for one in box.masked[:_SHOWN])
        note(f"{paint('corral', 'cyan')} secret files masked in the box: {names}")
    _more(len(box.masked))


def show_patch(patch: Patch | None) -> None:
    """The changed files with their counts, what did not go into the patch, what a reviewer should see."""
    if patch is None:
        note("  nothing changed")
        return
    if patch.files:
        note(f"  {plural(len(patch.files), 'file')} changed, +{patch.added} -{patch.removed}")
    for file in patch.files[:_SHOWN]:
        note(f"    {_file_line(file)}")
    _more(len(patch.files))
    _show_left_out(patch.not_exported)
    _show_findings(patch.findings)


def _file_line(file: FileChange) -> str:
    letter = _LETTERS[file.action]
    name = show_path(file.path)
    if file.old_path is not None:
        name = f"{show_path(file.old_path)} -> {name}"
    counts = "binary" if file.binary else f"+{file.added} -{file.removed}"
    if file.old_mode and file.new_mode and file.old_mode != file.new_mode:
        counts += f", mode {file.old_mode} -> {file.new_mode}"
    mark = paint(letter, _COLOURS[letter]) if letter in _COLOURS else letter
    return f"{mark} {name}  {paint(counts, 'dim')}"


def _more(count: int) -> None:
    if count > _SHOWN:
        note(f"    ... and {count - _SHOWN} more")


def _show_left_out(left_out: tuple[NotExported, ...]) -> None:
    if not left_out:
        return
    reasons = Counter(one.reason.value for one in left_out)
    note(f"  not in the patch: {', '.join(f'{count} {reason}' for reason, count in reasons.most_common())}")
    for one in left_out[:_SHOWN]:
        detail = f" ({one.detail})" if one.detail else ""
        note(paint(f"    {show_path(one.path)}  {one.reason.value}{detail}", "dim"))
    _more(len(left_out))


def _show_findings(findings: tuple[Finding, ...]) -> None:
    worth = [one for one in findings if one.severity is not Severity.INFO]
    for one in worth[:_SHOWN]:
        where = show_path(one.path) + (f":{one.line}" if one.line else "")
        note(f"  {paint('look at', 'yellow')} {where}: {one.text} [{one.kind}]")
    _more(len(worth))
