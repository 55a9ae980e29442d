"""The tools that change files: write, edit, patch, move, delete. The toolbox does it, all or nothing."""

from __future__ import annotations

from corral.schema.tools import ArgumentRole, Artifact, SideEffect, ToolKind, ToolResult, ToolSpec, ToolStatus
from corral.schema.visible import visible
from corral.tools.base import Arguments, Run, Tool, ToolContext, ToolTimeouts
from corral.tools.builtin.schema import PATH_NOTE, describe, flag, parameters, path, show_name, text
from corral_protocol.message import EditStep, FileChanged

_WRITE = describe(
    "Writes a whole text file, with the directories it needs.",
    "to make a new file, or to replace a small one completely (overwrite true).",
    "to change a part of a file: edit_file is safer and shorter.",
    "what happened, the size, and a diff when a file was replaced. An existing file is refused unless overwrite is "
    "true.",
)
_EDIT = describe(
    "Replaces one exact piece of text in a file by another.",
    "for any change to an existing file, after you have read it.",
    "to make new files (write_file), or for many places in many files at once (apply_patch).",
    "a diff of the change. old_string must be in the file exactly once, white space included and without line numbers, "
    "or replace_all must be true. Encoding, newline style and mode of the file are kept.",
)
_PATCH = describe(
    "Applies a patch to the workspace, all of it or nothing.",
    "to change several files together.",
    "for one small change: edit_file tells better what does not fit.",
    "the files changed, and every tolerance that was needed. Takes a unified diff or the *** Begin Patch format. Paths "
    "are relative to the workspace.",
)
_MOVE = describe(
    "Moves or renames a file or directory.",
    "to rename things, with the directories the new place needs.",
    "to copy: use shell.",
    "the new place. An existing target is refused unless overwrite is true.",
)
_DELETE = describe(
    "Deletes a file, or a directory with recursive true.",
    "to remove what the task does not need any more.",
    "to empty a file (write_file).",
    "what was deleted.",
)


def build_write_file(timeouts: ToolTimeouts) -> Tool:
    schema = parameters(
        ["path", "content"],
        path=path(f"The file. {PATH_NOTE}"),
        content=text("All of the file's text, written as UTF-8 exactly as given."),
        overwrite=flag("Replace the file if it exists."),
    )
    return _build("write_file", _WRITE, schema, timeouts, _write_file)


def build_edit_file(timeouts: ToolTimeouts) -> Tool:
    schema = parameters(
        ["path", "old_string", "new_string"],
        path=path(f"The file. {PATH_NOTE}"),
        old_string=text("The text to replace, exactly as it is in the file.", minimum=1),
        new_string=text("The text to put there; taken literally."),
        replace_all=flag("Replace every occurrence."),
    )
    return _build("edit_file", _EDIT, schema, timeouts, _edit_file)


def build_apply_patch(timeouts: ToolTimeouts) -> Tool:
    schema = parameters(
        ["patch"],
        patch=text("The whole patch.", minimum=1),
        dry_run=flag("Only check whether it applies."),
        overwrite=flag("Let added and moved files replace existing ones."),
    )
    roles = {"patch": ArgumentRole.PATCH}
    return _build("apply_patch", _PATCH, schema, timeouts, _apply_patch, roles=roles)


def build_move_file(timeouts: ToolTimeouts) -> Tool:
    schema = parameters(
        ["source", "target"],
        source=path(f"What to move. {PATH_NOTE}"),
        target=path(f"Its new name. {PATH_NOTE}"),
        overwrite=flag("Replace the target if it exists."),
    )
    roles = {"source": ArgumentRole.PATH, "target": ArgumentRole.PATH}
    return _build("move_file", _MOVE, schema, timeouts, _move_file, aliases=("rename_file",), roles=roles)


def build_delete_file(timeouts: ToolTimeouts) -> Tool:
    schema = parameters(
        ["path"],
        path=path(f"What to delete. {PATH_NOTE}"),
        recursive=flag("Delete a directory with everything in it."),
    )
    return _build(
        "delete_file", _DELETE, schema, timeouts, _delete_file, kind=ToolKind.DELETE, aliases=("remove_file",)
    )


def _build(
    name: str,
    description: str,
    schema: dict[str, object],
    timeouts: ToolTimeouts,
    run: Run,
    *,
    kind: ToolKind = ToolKind.WRITE,
    aliases: tuple[str, ...] = (),
    roles: dict[str, ArgumentRole] | None = None,
) -> Tool:
    spec = ToolSpec(
        name=name,
        aliases=aliases,
        description=description,
        parameters=schema,
        scope="workspace",
        side_effect=SideEffect.WORKSPACE_WRITE,
        idempotent=False,
        timeout_s=timeouts.file_s,
        kind=kind,
        roles=roles or {"path": ArgumentRole.PATH},
    )
    return Tool(spec, run)


async def _write_file(arguments: Arguments, context: ToolContext) -> ToolResult:
    content = arguments["content"].encode()
    overwrite = arguments.get("overwrite", False)
    return _describe([await context.sandbox.write_file(arguments["path"], content, overwrite=overwrite)])


async def _edit_file(arguments: Arguments, context: ToolContext) -> ToolResult:
    step = EditStep(arguments["old_string"], arguments["new_string"], arguments.get("replace_all", False))
    return _describe([await context.sandbox.edit_file(arguments["path"], [step])])


async def _apply_patch(arguments: Arguments, context: ToolContext) -> ToolResult:
    result = await context.sandbox.apply_patch(
        arguments["patch"].encode(),
        dry_run=arguments.get("dry_run", False),
        overwrite=arguments.get("overwrite", False),
    )
    return _describe(result.files, notices=result.notices, dry_run=result.dry_run)


async def _move_file(arguments: Arguments, context: ToolContext) -> ToolResult:
    overwrite = arguments.get("overwrite", False)
    return _describe([await context.sandbox.move_file(arguments["source"], arguments["target"], overwrite=overwrite)])


async def _delete_file(arguments: Arguments, context: ToolContext) -> ToolResult:
    return _describe(
        [await context.sandbox.delete_file(arguments["path"], recursive=arguments.get("recursive", False))]
    )


def _describe(files: list[FileChanged], *, notices: list[str] | None = None, dry_run: bool = False) -> ToolResult:
    """What was changed: a line for each file, and the diffs."""
    told = [_describe_file(file) for file in files]
    told += [visible(notice, limit=300) for notice in (notices or [])[:20]]
    diffs = [file.diff for file in files if file.diff]
    first = told[0] if told else "nothing changed"
    more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
    body = "\n".join([*(told if len(told) > 1 else []), *diffs])
    return ToolResult(
        success=True,
        status=ToolStatus.NOT_EXECUTED if dry_run else ToolStatus.OK,
        output=body,
        summary=("it applies; not done, as dry_run was set: " if dry_run else "") + first + more,
        artifacts=() if dry_run else tuple(_describe_artifact(file) for file in files if file.action != "unchanged"),
        data={"files": len(files)},
    )


def _describe_file(file: FileChanged) -> str:
    line = f"{file.action} {show_name(file.path)}"
    if file.action in ("created", "modified"):
        line += f", {file.size} bytes"
    if file.replaced:
        line += f", {file.replaced} replacement{'s' if file.replaced > 1 else ''}"
    return "; ".join([line, *(visible(notice, limit=300) for notice in file.notices[:5])])


def _describe_artifact(file: FileChanged) -> Artifact:
    return Artifact(path=show_name(file.path), size=file.size, sha256=file.sha256)
