"""`read_file` and `list_files`: looking at the box's files, and at outputs kept on the host."""

from __future__ import annotations

import asyncio
import posixpath

from corral.schema.tools import ArgumentRole, SideEffect, ToolKind, ToolResult, ToolSpec, ToolStatus, Truncation
from corral.tools.base import Arguments, Tool, ToolContext, ToolTimeouts
from corral.tools.bounds import SHOWN_BYTES
from corral.tools.builtin.schema import PATH_NOTE, describe, number, parameters, path, show_name
from corral.tools.outputs import PREFIX
from corral_protocol.message import FileContent, ListEntry, Listing

_READ_BYTES = SHOWN_BYTES - 1024  # the executor's own cut must not strike
_MARKS = {"dir": "/", "symlink": "", "fifo": " (fifo)", "socket": " (socket)", "device": " (device)", "file": ""}

_READ = describe(
    "Reads a file, with line numbers.",
    "before you edit a file, and to look at code, configuration or a kept output (/outputs/<call>).",
    "to look for something in many files (search), or to see what a directory holds (list_files).",
    "the lines, each with its number and a tab, and how many there are. Long files come in parts: ask for the next "
    "with offset. A binary file is told with its size and digest only; with offset, a hex dump.",
)
_LIST = describe(
    "Lists a directory.",
    "to find your way in the workspace, or to see the kept outputs (path /outputs).",
    "to look for text (search).",
    "one entry per line: size and name; a directory ends in a slash, a link shows its target. Names with odd "
    "characters come as JSON strings; send them back as that string.",
)


def build_read_file(timeouts: ToolTimeouts) -> Tool:
    schema = parameters(
        ["path"],
        path=path(f"The file. {PATH_NOTE}"),
        offset=number("First line to read, from 1; the byte offset for a binary file.", minimum=0),
        limit=number("How many lines, or bytes of a binary file.", minimum=1, maximum=1_000_000),
    )
    spec = ToolSpec(
        name="read_file",
        description=_READ,
        parameters=schema,
        scope="workspace",
        side_effect=SideEffect.READ_ONLY,
        idempotent=True,
        timeout_s=timeouts.file_s,
        kind=ToolKind.READ,
        roles={"path": ArgumentRole.PATH},
    )
    return Tool(spec, _read_file)


def build_list_files(timeouts: ToolTimeouts) -> Tool:
    schema = parameters(
        path=path("The directory; the workspace if not given.", empty=True),
        depth=number("How many levels deep, 1 if not given.", minimum=1, maximum=20),
        limit=number("At most so many entries, 500 if not given.", minimum=1, maximum=2000),
    )
    spec = ToolSpec(
        name="list_files",
        aliases=("list_dir", "list_directory"),
        description=_LIST,
        parameters=schema,
        scope="workspace",
        side_effect=SideEffect.READ_ONLY,
        idempotent=True,
        timeout_s=timeouts.file_s,
        kind=ToolKind.READ,
        roles={"path": ArgumentRole.PATH},
    )
    return Tool(spec, _list_files)


def _is_output(name: str) -> bool:
    plain = posixpath.normpath(name)
    return plain == PREFIX.rstrip("/") or plain.startswith(PREFIX)


async def _read_file(arguments: Arguments, context: ToolContext) -> ToolResult:
    name, offset, limit = arguments["path"], arguments.get("offset"), arguments.get("limit")
    if _is_output(name):
        return await _read_output(posixpath.normpath(name), offset, limit, context)
    content = await context.sandbox.read_file(name, offset=offset, limit=limit, max_bytes=_READ_BYTES)
    return _describe_content(content)


async def _read_output(name: str, offset: int | None, limit: int | None, context: ToolContext) -> ToolResult:
    # In a thread: a kept output may be 64 MiB, and lines can only be counted by reading.
    page = await asyncio.to_thread(context.outputs.read, name, offset=offset, limit=limit, max_bytes=_READ_BYTES)
    shown = f"lines {page.first_line} to {page.last_line}" if page.text else "no such lines"
    return ToolResult(
        success=True,
        status=ToolStatus.TRUNCATED if page.more else ToolStatus.OK,
        output=page.text,
        summary=f"{name}: {page.size} bytes, {shown}",
        next_actions=(f"read on with offset {page.last_line + 1}",) if page.more else (),
        truncation=Truncation(shown_bytes=len(page.text.encode()), total_bytes=page.size) if page.more else None,
        data={"path": name, "size": page.size},
    )


def _describe_content(content: FileContent) -> ToolResult:
    name = show_name(content.path)
    facts = [f"{name}: {content.kind}, {content.size} bytes"]
    following: tuple[str, ...] = ()
    if content.kind == "text":
        total = f" of {content.total_lines}" if content.total_lines is not None else ""
        facts.append(f"lines {content.first_line} to {content.last_line}{total}")
        facts.append(content.encoding + (" with BOM" if content.bom else ""))
        facts += [f"newlines {content.newline}"] if content.newline not in ("", "lf") else []
        facts += [] if content.final_newline else ["no newline at the end"]
        if content.truncated:
            following = (f"read on with offset {content.last_line + 1}",)
    elif content.kind == "binary":
        facts.append(f"sha256 {content.sha256 or 'not taken'}")
    shown = len(content.text.encode("utf-8", "replace"))
    cut = Truncation(shown_bytes=min(shown, content.size), total_bytes=content.size) if content.truncated else None
    return ToolResult(
        success=True,
        status=ToolStatus.TRUNCATED if cut else ToolStatus.OK,
        output=content.text,
        summary=", ".join(facts),
        next_actions=following,
        truncation=cut,
        data={"path": name, "size": content.size, "sha256": content.sha256},
    )


async def _list_files(arguments: Arguments, context: ToolContext) -> ToolResult:
    name = arguments.get("path", "")
    if name and _is_output(name):
        return _list_outputs(context)
    listing = await context.sandbox.list_files(name, depth=arguments.get("depth", 1), limit=arguments.get("limit", 500))
    return _describe_listing(listing)


def _list_outputs(context: ToolContext) -> ToolResult:
    kept = context.outputs.names()
    lines = [f"{size:>12}  {name}" for name, size in kept]
    return ToolResult(
        success=True, status=ToolStatus.OK, output="\n".join(lines), summary=f"{PREFIX}: {len(kept)} kept outputs"
    )


def _describe_listing(listing: Listing) -> ToolResult:
    lines = [_describe_entry(entry) for entry in listing.entries]
    summary = f"{show_name(listing.path)}: {len(lines)} entries"
    if listing.truncated:
        summary += f" of {listing.total or 'more'}"
    return ToolResult(
        success=True,
        status=ToolStatus.TRUNCATED if listing.truncated else ToolStatus.OK,
        output="\n".join(lines),
        summary=summary if lines else f"{show_name(listing.path)}: empty directory",
        next_actions=("list a directory below it, or raise limit",) if listing.truncated else (),
        data={"entries": len(lines), "total": listing.total},
    )


def _describe_entry(entry: ListEntry) -> str:
    target = f" -> {show_name(entry.target)}" if entry.kind == "symlink" else ""
    size = str(entry.size) if entry.kind == "file" else "-"
    return f"{size:>12}  {show_name(entry.path)}{_MARKS.get(entry.kind, '')}{target}"
