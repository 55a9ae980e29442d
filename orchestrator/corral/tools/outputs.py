"""The full text of what commands printed, on the host: written as it streams, read back as /outputs/<call>.

The files are the box's words: bounded in size, never executed or opened by a name the box or the model chose.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from corral.errors import ToolError
from corral.schema.text import digest
from corral.tools.bounds import show_controls
from corral_protocol.error import ErrorCode

PREFIX = "/outputs/"
KEPT_BYTES = 64 << 20

_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_REQUESTED = re.compile(r"([A-Za-z0-9_-]{1,120})(\.stdout|\.stderr)?")
_MAX_LINE = 2000
_BLOCK = 64 << 10


@dataclass(frozen=True)
class OutputPage:
    """A part of a kept output, with line numbers."""

    text: str
    first_line: int
    last_line: int
    size: int
    more: bool


class OutputStore:
    """The outputs directory of one run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._taken: set[str] | None = None  # names in use; read from the directory once

    def open(self, call_id: str) -> CallOutput:
        """A place for one call's output. No file is made before there is a byte to keep."""
        # SECURITY: call ids are a model's words, not file names; test_a_call_id_never_becomes_a_path
        stem = call_id if _SAFE_NAME.fullmatch(call_id) else f"c-{digest(call_id)[:16]}"
        if self._taken is None:
            self._taken = self._find_taken()
        name, count = stem, 1
        while name in self._taken:
            count += 1
            name = f"{stem}-{count}"
        self._taken.add(name)
        return CallOutput(self._directory, name)

    def _find_taken(self) -> set[str]:
        try:
            return {name.rpartition(".")[0] for name in os.listdir(self._directory)}
        except OSError:
            return set()  # not made yet; what else is wrong with it is told when there is something to keep

    def names(self) -> list[tuple[str, int]]:
        """Every kept output as it can be asked for, with its size."""
        if not self._directory.is_dir():
            return []
        found = [entry for entry in os.scandir(self._directory) if entry.is_file(follow_symlinks=False)]
        return sorted((f"{PREFIX}{entry.name.removesuffix('.stdout')}", entry.stat().st_size) for entry in found)

    def read(self, path: str, *, offset: int | None, limit: int | None, max_bytes: int) -> OutputPage:
        """Lines from `offset` (1-based; negative counts from the end). Raises ToolError."""
        match = _REQUESTED.fullmatch(path.removeprefix(PREFIX))
        # SECURITY: only a plain name of ours reaches the file system; test_outputs_cannot_be_left
        file = self._directory / f"{match[1]}{match[2] or '.stdout'}" if match else None
        if file is None:
            raise ToolError(f"{path!r} is no kept output", code=ErrorCode.NOT_FOUND, hint="list /outputs to see them")
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            message = f"{path!r} is no kept output"
            raise ToolError(message, code=ErrorCode.NOT_FOUND, hint="list /outputs to see them") from error
        with os.fdopen(descriptor, "rb") as stream:
            return _read_page(stream, offset, limit, max_bytes)


class CallOutput:
    """Takes the streams of one call. `stdout` and `stderr` are sinks."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.problem = ""  # why not all of it is kept
        self._directory = directory
        self._descriptors: dict[str, int] = {}
        self._written: dict[str, int] = {}

    @property
    def path(self) -> str:
        return PREFIX + self.name

    def stdout(self, data: memoryview) -> None:
        self._write("stdout", data)

    def stderr(self, data: memoryview) -> None:
        self._write("stderr", data)

    def kept(self, stream: str) -> int:
        return self._written.get(stream, 0)

    def read_back(self, stream: str, max_bytes: int) -> bytes:
        """The first bytes of what was kept."""
        if stream not in self._descriptors and stream not in self._written:
            return b""
        with (self._directory / f"{self.name}.{stream}").open("rb") as file:
            return file.read(max_bytes)

    def store(self, text: str) -> None:
        """Keep a whole text as this call's output."""
        self._write("stdout", memoryview(text.encode("utf-8", "replace")))
        self.close()

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _write(self, stream: str, data: memoryview) -> None:
        written = self._written.get(stream, 0)
        room = KEPT_BYTES - written
        if self.problem or not data or room <= 0:
            return
        try:
            if stream not in self._descriptors:
                self._descriptors[stream] = self._create(stream)
            rest = data[:room]
            while rest:
                count = os.write(self._descriptors[stream], rest)
                written += count
                rest = rest[count:]
        except OSError as error:
            # The command goes on: losing the copy must not lose the call.
            self.problem = error.strerror or str(error)
        self._written[stream] = written

    def _create(self, stream: str) -> int:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._directory / f"{self.name}.{stream}", flags, 0o600)


def _read_page(stream: BinaryIO, offset: int | None, limit: int | None, max_bytes: int) -> OutputPage:
    """One pass in bounded memory, whatever the length of file and lines."""
    size = os.fstat(stream.fileno()).st_size
    first = 1 if offset is None else offset
    if first < 0:
        first = max(1, _count_lines(stream) + first + 1)
    parts: list[str] = []
    used, number, last = 0, 0, 0
    for line, cut in _lines(stream):
        number += 1
        if number < first:
            continue
        if limit is not None and number >= first + limit:
            return OutputPage("".join(parts), first, last, size, more=True)
        text = show_controls(line.decode("utf-8", "replace")) + (f" […+{cut} bytes]" if cut else "")
        shown = f"{number:6}\t{text}\n"
        if parts and used + len(shown.encode()) > max_bytes:
            return OutputPage("".join(parts), first, last, size, more=True)
        parts.append(shown)
        used += len(shown.encode())
        last = number
    return OutputPage("".join(parts), first, last, size, more=False)


def _lines(stream: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Each line without its end, cut to _MAX_LINE, and how many bytes were cut."""
    while line := stream.readline(_MAX_LINE):
        cut = 0
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(_BLOCK)
            cut += len(rest.rstrip(b"\n"))
        yield line.rstrip(b"\n"), cut


def _count_lines(stream: BinaryIO) -> int:
    count, end = 0, b"\n"
    while block := stream.read(_BLOCK):
        count += block.count(b"\n")
        end = block[-1:]
    stream.seek(0)
    return count + (end != b"\n")
