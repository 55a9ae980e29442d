"""What a run changed, in a few calm lines on stderr."""

from __future__ import annotations

from collections import Counter

from corral.cli.output import note, paint, plural
from corral.schema.path import show_path
from corral.schema.patch import Action, FileChange, Finding, NotExported, Patch, Severity

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
