"""What the workspace was when the box started: what an export compares the original with, so that the user's own edits
during a run are never reverted in silence.

An overlay needs no list: the change time of a file cannot be set, so whatever has a later one was touched. A copy has
the list of all that was sent. JSON Lines, the first line a head.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from corral.errors import RecordError
from corral.sandbox.spec import WorkspaceMode
from corral.sandbox.workspace.tree.pack import Packed
from corral_protocol.name import decode_name, encode_name

FILE = "baseline.jsonl"
_VERSION = 1


@dataclass(frozen=True)
class Baseline:
    """The head. `base_time_ns`: files of the original with a later change time were touched after the start."""

    mode: WorkspaceMode
    workspace: bytes
    base_time_ns: int


def write_baseline(path: Path, head: Baseline) -> IO[str]:
    """A new file with its head; the entries of a copy are added with `append_entry`."""
    file = open(path, "w", encoding="utf-8")  # noqa: SIM115 (handed to the caller)
    line = {
        "version": _VERSION,
        "mode": head.mode.value,
        "workspace": encode_name(head.workspace),
        "base_time_ns": head.base_time_ns,
    }
    file.write(json.dumps(line) + "\n")
    file.flush()
    return file


def append_entry(file: IO[str], entry: Packed) -> None:
    row: dict[str, object] = {
        "path": encode_name(entry.path),
        "kind": entry.kind,
        "mode": entry.mode,
        "size": entry.size,
        "mtime_ns": entry.mtime_ns,
    }
    if entry.sha256:
        row["sha256"] = entry.sha256
    if entry.kind == "symlink":
        row["target"] = encode_name(entry.target)
    if entry.is_masked:
        row["masked"] = True
    file.write(json.dumps(row) + "\n")


def load_baseline(path: Path) -> Baseline:
    """The head. Raises RecordError."""
    head = next(_read_rows(path), None)
    if head is None or head.get("version") != _VERSION:
        raise RecordError(f"the run's baseline {str(path)!r} is empty or of another version")
    try:
        return Baseline(
            WorkspaceMode(str(head["mode"])), decode_name(str(head["workspace"])), int(str(head["base_time_ns"]))
        )
    except (KeyError, ValueError) as error:
        raise RecordError(f"the run's baseline {str(path)!r} cannot be read: {error}") from None


def load_entries(path: Path) -> Iterator[Packed]:
    """What a copy held when it was sent, parents first; nothing for an overlay. Raises RecordError."""
    rows = _read_rows(path)
    next(rows, None)
    for row in rows:
        try:
            yield Packed(
                path=decode_name(str(row["path"])),
                kind=str(row["kind"]),
                mode=int(str(row["mode"])),
                size=int(str(row["size"])),
                mtime_ns=int(str(row["mtime_ns"])),
                sha256=str(row.get("sha256", "")),
                target=decode_name(str(row.get("target", ""))),
                is_masked=row.get("masked") is True,
            )
        except (KeyError, ValueError) as error:
            raise RecordError(f"the run's baseline {str(path)!r} cannot be read: {error}") from None


def _read_rows(path: Path) -> Iterator[dict[str, object]]:
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("a line is no object")
                yield row
    except (OSError, ValueError) as error:
        raise RecordError(f"the run's baseline {str(path)!r} cannot be read: {error}") from None
