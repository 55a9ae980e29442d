"""The typed calls of a box, for programs: commands and files. The same for everything that can make a call."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from corral.api.job import Job
from corral.api.result import (
    Collector,
    CommandResult,
    SearchResult,
    build_result,
    build_search_result,
    show_capture,
)
from corral.api.tool import Work, through
from corral.errors import ToolError
from corral.sandbox.base import Sink
from corral.schema.text import digest
from corral.schema.tools import Artifact, ToolResult, ToolSpec, ToolStatus
from corral.tools.base import Arguments, Tool, ToolContext
from corral.tools.jobs import JobBook
from corral_protocol.error import ErrorCode
from corral_protocol.message import EditStep, FileChanged, FileContent, Listing, PatchResult

OUTPUT_LIMIT = 16 << 20
FETCH_LIMIT = 256 << 20


class BoxCalls:
    """Everything of corral.Sandbox that is not lifecycle.

    A path is relative to the workspace, or absolute below it or /tmp. Each call raises ToolError when it failed, was
    denied (code `policy_denied`, `approval_denied`) or its arguments are wrong, and SandboxError when the box is gone.
    """

    _env: dict[str, str]
    _timeout_s: float | None
    _jobs: JobBook
    _specs: dict[str, tuple[ToolSpec, Tool | None]]

    async def _call(self, name: str, arguments: dict[str, Any], work: Work) -> Any:
        raise NotImplementedError

    async def shell(
        self,
        command: str,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        on_stdout: Sink | None = None,
        on_stderr: Sink | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> CommandResult:
        """Run a command line in the box's shell, with standard input at its end.

        `cwd` is the workspace if not given; `env` is added to the box's. After `timeout_s` seconds it is ended with all
        its children and the result has `timed_out`; what it leaves running in the background otherwise lives on. The
        sinks get all output as it comes, as memoryviews that are valid until they return, or until what they return is
        awaited; the result keeps the first `output_limit` bytes of each stream. A failure of the command is a result;
        raises ToolError when it was denied or cannot be asked for.
        """
        streams = (Collector(output_limit, on_stdout), Collector(output_limit, on_stderr))

        async def work(arguments: Arguments, context: ToolContext) -> tuple[CommandResult, ToolResult]:
            result = await context.sandbox.shell(
                command,
                cwd=cwd,
                env=self._env | dict(env or {}),
                timeout_s=arguments["timeout_s"],
                stdout=streams[0].receive,
                stderr=streams[1].receive,
                stream_limit=-1,
            )
            return _describe_command(build_result(result, *streams), show_capture(result))

        return await self._command("shell", command, work, cwd, env, timeout_s)

    async def exec(
        self,
        argv: Sequence[str | bytes],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        on_stdout: Sink | None = None,
        on_stderr: Sink | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> CommandResult:
        """Run a program, without a shell: `argv[0]` is looked up along the box's PATH. Otherwise like `shell`.

        `stdin` is what it reads, bytes or a stream of them; at its end if not given. A program that is not there is a
        result with exit code 127, one that cannot be run 126.
        """
        streams = (Collector(output_limit, on_stdout), Collector(output_limit, on_stderr))
        words = list(argv)

        async def work(arguments: Arguments, context: ToolContext) -> tuple[CommandResult, ToolResult]:
            result = await context.sandbox.exec(
                list(words),
                cwd=cwd,
                env=self._env | dict(env or {}),
                timeout_s=arguments["timeout_s"],
                stdin=_once(stdin) if isinstance(stdin, bytes) else stdin,
                stdout=streams[0].receive,
                stderr=streams[1].receive,
                stream_limit=-1,
            )
            return _describe_command(build_result(result, *streams), show_capture(result))

        line = shlex.join(os.fsencode(word).decode("utf-8", "backslashreplace") for word in words)
        return await self._command("exec", line, work, cwd, env, timeout_s)

    async def start_job(self, command: str, *, terminal: tuple[int, int] | None = None) -> Job:
        """Start a command line in the background, in the workspace: a server, a REPL, a debugger.

        `terminal` gives it a terminal of that size, (rows, columns). At most 8 run at once, and all are gone with the
        box. Raises ToolError: `busy` when too many run, `unsupported` where the image has no shell.
        """
        size = {"rows": terminal[0], "columns": terminal[1]} if terminal else {}
        told = await self._job(action="start", command=command, terminal=bool(terminal) or None, wait_s=0, **size)
        return Job(self._jobs.find(told.data["job"]), self._job)

    async def _job(self, **arguments: Any) -> ToolResult:
        async def work(given: Arguments, context: ToolContext) -> tuple[ToolResult, ToolResult]:
            tool = self._specs["process"][1]
            assert tool is not None
            result = await tool.run(given, context)
            return result, result

        told: ToolResult = await self._call("process", arguments, work)
        return told

    async def read_file(self, path: str, *, offset: int | None = None, limit: int | None = None) -> FileContent:
        """A file as a model is shown it: numbered lines from `offset` (1-based, negative from the end), at most 32 KiB.

        Of a file that is no text, `kind` says so and an `offset` in bytes gives a hex dump. `fetch_file` gives the
        bytes. Raises ToolError: `not_found`, `is_a_directory`, `not_a_regular_file`, `permission_denied`.
        """
        content: FileContent = await self._built_in("read_file", path=path, offset=offset, limit=limit)
        return content

    async def list_files(self, path: str = "", *, depth: int = 1, limit: int = 500) -> Listing:
        """What is in a directory, to that depth (at most 20), at most `limit` entries (at most 2000); `truncated` when
        there are more. Links are listed, not followed. Raises ToolError: `not_found`, `not_a_directory`.
        """
        listing: Listing = await self._built_in("list_files", path=path or None, depth=depth, limit=limit)
        return listing

    async def search(
        self,
        pattern: str,
        path: str = "",
        *,
        glob: str | None = None,
        literal: bool = False,
        ignore_case: bool = False,
        include_ignored: bool = False,
        files_only: bool = False,
        context: int = 0,
        limit: int = 100,
    ) -> SearchResult:
        """Search the text of files for a regular expression in Rust's syntax, or for plain text with `literal`.

        `path` is a file or directory, the workspace if not given. `glob` takes only files that match (`*.py`), with a
        leading `!` only others. Files that .gitignore names are left out but with `include_ignored`; binary files and
        .git always. `context` (at most 20) lines around each match are shown, and at most `limit` (at most 1000) lines.
        Raises ToolError with code `unsupported` where the image has no ripgrep, `invalid_argument` for a bad pattern.
        """

        async def work(arguments: Arguments, context: ToolContext) -> tuple[SearchResult, ToolResult]:
            tool = self._specs["search"][1]
            assert tool is not None
            result = await tool.run(arguments, context)
            return build_search_result(result), result

        options = {"literal": literal, "ignore_case": ignore_case, "include_ignored": include_ignored}
        arguments = {"pattern": pattern, "path": path or None, "glob": glob, "files_only": files_only} | options
        found: SearchResult = await self._call("search", arguments | {"context": context, "limit": limit}, work)
        return found

    async def fetch_file(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """The bytes of a file, at most `limit` from `offset`. Without a limit a file over 256 MiB is refused.

        Raises ToolError: `too_large`, `not_found`, `is_a_directory`, `not_a_regular_file`, `permission_denied`.
        """
        kept = bytearray()

        async def work(arguments: Arguments, context: ToolContext) -> tuple[bytes, ToolResult]:
            most = FETCH_LIMIT + 1 if limit is None else limit
            reply = await context.sandbox.fetch_file(path, kept.extend, offset=offset, limit=most)
            if limit is None and reply.sent > FETCH_LIMIT:
                raise ToolError(f"{path!r} is over {FETCH_LIMIT} bytes", code=ErrorCode.TOO_LARGE, hint="give a limit")
            return bytes(kept), ToolResult(success=True, status=ToolStatus.OK, summary=f"{reply.sent} bytes")

        content: bytes = await self._call("fetch_file", {"path": path, "offset": offset, "size": limit}, work)
        return content

    async def write_file(
        self, path: str, content: str | bytes, *, overwrite: bool = True, mode: int | None = None
    ) -> FileChanged:
        """Write a whole file, text as UTF-8, with the directories it needs. A failure leaves the old bytes.

        `mode` is that of a new file (0o644 if not given); a file that is there keeps its own. Raises ToolError:
        `exists` without `overwrite`, `no_space`, `outside_workspace`, `read_only`, `permission_denied`.
        """
        data = content.encode() if isinstance(content, str) else content

        async def work(arguments: Arguments, context: ToolContext) -> tuple[FileChanged, ToolResult]:
            changed = await context.sandbox.write_file(path, data, overwrite=overwrite, mode=mode)
            return changed, _describe_change(changed)

        arguments = {"path": path, "size": len(data), "sha256": digest(data)}
        written: FileChanged = await self._call("write_file", arguments, work)
        return written

    async def store_file(
        self, path: str, body: AsyncIterator[bytes], size: int, *, mode: int | None = None
    ) -> FileChanged:
        """Stream exactly `size` bytes into a file, of any size; raises as `write_file`. A failure leaves the old
        bytes."""

        async def work(arguments: Arguments, context: ToolContext) -> tuple[FileChanged, ToolResult]:
            changed = await context.sandbox.store_file(path, body, size, mode=mode)
            return changed, _describe_change(changed)

        stored: FileChanged = await self._call("store_file", {"path": path, "size": size}, work)
        return stored

    async def edit_file(self, path: str, old_string: str, new_string: str, *, replace_all: bool = False) -> FileChanged:
        """Replace a piece of text that is in the file exactly once, or all of them with `replace_all`.

        Encoding, line ends and mode stay. `diff` of the result shows the change. Raises ToolError: `no_match` (`data`
        has the nearest lines), `ambiguous_match`, `no_change`, `binary_file`, `not_found`.
        """
        step = EditStep(old_string, new_string, replace_all)
        edited: FileChanged = await self._built_in(
            "edit_file", path=path, old_string=step.old, new_string=step.new, replace_all=replace_all
        )
        return edited

    async def apply_patch(self, patch: str, *, dry_run: bool = False, overwrite: bool = False) -> PatchResult:
        """Apply a unified diff or a `*** Begin Patch` text, all of it or nothing.

        `dry_run` only says what would change. Raises ToolError: `patch_invalid`, `patch_conflict`, `ambiguous_match`,
        `outside_workspace`, `exists` for what
        would be made anew without `overwrite`.
        """
        result: PatchResult = await self._built_in("apply_patch", patch=patch, dry_run=dry_run, overwrite=overwrite)
        return result

    async def move_file(self, source: str, target: str, *, overwrite: bool = False) -> FileChanged:
        """Move or rename a file or directory, with the directories the new place needs.

        Raises ToolError: `not_found`, `exists` without `overwrite`, `outside_workspace`.
        """
        moved: FileChanged = await self._built_in("move_file", source=source, target=target, overwrite=overwrite)
        return moved

    async def delete_file(self, path: str, *, recursive: bool = False) -> FileChanged:
        """Delete a file, a link or an empty directory; with `recursive` a directory with everything in it.

        Raises ToolError: `not_found`, `not_empty`, `outside_workspace`.
        """
        deleted: FileChanged = await self._built_in("delete_file", path=path, recursive=recursive)
        return deleted

    async def _command(
        self, tool: str, line: str, work: Work, cwd: str, env: Mapping[str, str] | None, timeout_s: float | None
    ) -> CommandResult:
        names = sorted(self._env.keys() | (env or {}).keys())
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        arguments = {"command": line, "cwd": cwd or None, "env": names or None, "timeout_s": limit_s}
        result: CommandResult = await self._call(tool, arguments, work)
        return result

    async def _built_in(self, name: str, **arguments: Any) -> Any:
        async def work(given: Arguments, context: ToolContext) -> tuple[Any, ToolResult]:
            tool = self._specs[name][1]
            assert tool is not None
            return await through(tool)(given, context)

        return await self._call(name, arguments, work)


def _describe_command(result: CommandResult, shown: str) -> tuple[CommandResult, ToolResult]:
    data: dict[str, Any] = {"exit_code": result.exit_code}
    data |= {"signal": result.signal} if result.signal else {}
    data |= {"cause": result.cause} if result.cause else {}
    data |= {"cwd": result.cwd} if result.cwd else {}
    status = ToolStatus.TIMEOUT if result.timed_out else ToolStatus.OK
    told = ToolResult(
        success=result.ok,
        status=status,
        output=shown,
        summary=f"exit code {result.exit_code}",
        resources=result.resources,
        data=data,
    )
    return result, told


def _describe_change(changed: FileChanged) -> ToolResult:
    artifact = Artifact(path=changed.path, size=changed.size, sha256=changed.sha256)
    return ToolResult(
        success=True, status=ToolStatus.OK, summary=f"{changed.action}, {changed.size} bytes", artifacts=(artifact,)
    )


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
