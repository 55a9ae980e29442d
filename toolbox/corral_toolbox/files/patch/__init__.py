"""file.patch: unified diffs and `*** Begin Patch`, all or nothing."""

from __future__ import annotations

from corral_protocol.failure import WireError
from corral_protocol.name import encode_name
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.error_map import translate_os_error
from corral_toolbox.files.load import describe_change
from corral_toolbox.files.params import Params, take_bool, take_bytes
from corral_toolbox.files.patch.commit import commit_files
from corral_toolbox.files.patch.model import ParsedPatch
from corral_toolbox.files.patch.stage import Stage, StagedFile
from corral_toolbox.files.patch.unified import is_unified, parse_unified
from corral_toolbox.files.patch.v4a import is_v4a, parse_v4a
from corral_toolbox.files.resolve import FileEnv
from corral_toolbox.files.text.diff import MAX_DIFF_BYTES
from corral_toolbox.files.text.visible import show_path

__all__ = ["parse_patch", "patch_files"]

_MAX_NOTICES = 100
_MAX_DIFFS = 200 << 10  # of all files together: a reply is one frame of at most 1 MiB


def patch_files(params: Params, env: FileEnv) -> dict[str, object]:
    """FilePatch -> PatchResult."""
    dry_run = take_bool(params, "dry_run", default=False)
    parsed = parse_patch(take_bytes(params, "text_b64"))
    stage = Stage(env, overwrite=take_bool(params, "overwrite", default=False))
    try:
        for section in parsed.sections:
            try:
                stage.add(section)
            except OSError as error:
                raise translate_os_error(error, section.path) from error
        changed = [file for file in stage.files.values() if file.is_changed]
        if not changed:
            raise WireError(ErrorCode.NO_CHANGE, "no change: the patch leaves every file as it is")
        if not dry_run:
            commit_files(changed)
        notices = parsed.notices + stage.notices
        for file in stage.files.values():
            notices += [f"{show_path(file.place.path)}: {notice}" for notice in file.notices]
        if len(notices) > _MAX_NOTICES:
            notices = [*notices[:_MAX_NOTICES], f"and {len(notices) - _MAX_NOTICES} more of this kind"]
        return {"files": _describe_all(stage), "notices": notices, "dry_run": dry_run}
    finally:
        stage.close()


def parse_patch(text: bytes) -> ParsedPatch:
    """Read a patch in either format."""
    if is_v4a(text):
        return parse_v4a(text)
    if is_unified(text):
        return parse_unified(text)
    raise WireError(
        ErrorCode.PATCH_INVALID,
        "this is neither a unified diff nor a `*** Begin Patch` patch",
        {"line": 1, "hint": "begin with `--- a/PATH` and `+++ b/PATH`, or with `*** Begin Patch`"},
    )


def _describe_all(stage: Stage) -> list[dict[str, object]]:
    room = _MAX_DIFFS
    replies: list[dict[str, object]] = []
    for file in stage.files.values():
        action = _name_action(file)
        if action is not None:
            reply = describe_change(
                file.place.path, action, _old_text(stage, file), file.new, diff_limit=min(room, MAX_DIFF_BYTES)
            )
            if file.moved_from:
                reply["notices"] = [f"moved from {encode_name(file.moved_from)!r}"]
            room -= len(str(reply["diff"]))
            replies.append(reply)
    return replies


def _old_text(stage: Stage, file: StagedFile) -> bytes | None:
    source = stage.files.get(file.moved_from) if file.moved_from else file
    return source.old if source is not None else None


def _name_action(file: StagedFile) -> str | None:
    if file.new is None:
        return "deleted" if file.place.stat is not None and not file.is_move_source else None
    if file.moved_from:
        return "moved"
    if file.place.stat is None:
        return "created"
    return "modified" if file.is_changed else "unchanged"
