"""Failures as results, and results as text for a model."""

from __future__ import annotations

from corral.errors import ToolError
from corral.schema.tools import ErrorInfo, ToolResult, ToolStatus
from corral.schema.visible import visible
from corral_protocol.error import ErrorCode

_PARAMETER, _ENVIRONMENT, _PERMISSION, _UNKNOWN = "parameter", "environment", "permission", "unknown"

_FAILURES: dict[str, tuple[str, str]] = {
    ErrorCode.INVALID_ARGUMENT: (_PARAMETER, "correct the argument named and call again"),
    ErrorCode.NOT_FOUND: (_PARAMETER, "list the directory to see what is there"),
    ErrorCode.EXISTS: (_PARAMETER, "choose another name, or set overwrite when replacing it is meant"),
    ErrorCode.NOT_A_REGULAR_FILE: (_PARAMETER, "only regular files can be used here"),
    ErrorCode.IS_A_DIRECTORY: (_PARAMETER, "use list_files for a directory"),
    ErrorCode.NOT_A_DIRECTORY: (_PARAMETER, "a part of the path is a file; list its parent"),
    ErrorCode.NOT_EMPTY: (_PARAMETER, "set recursive when deleting everything in it is meant"),
    ErrorCode.NO_MATCH: (_PARAMETER, "read the file again and copy the text exactly, without line numbers"),
    ErrorCode.AMBIGUOUS_MATCH: (_PARAMETER, "give more lines around the place, or set replace_all"),
    ErrorCode.NO_CHANGE: (_PARAMETER, "the file is already so; go on"),
    ErrorCode.BINARY_FILE: (_PARAMETER, "this is no text; use shell with a fitting program"),
    ErrorCode.UNSUPPORTED_ENCODING: (_PARAMETER, "use shell with a fitting program"),
    ErrorCode.TOO_LARGE: (_PARAMETER, "ask for a smaller part"),
    ErrorCode.PATCH_INVALID: (_PARAMETER, "correct the patch at the line named"),
    ErrorCode.PATCH_CONFLICT: (_PARAMETER, "read the files again and make the patch anew"),
    ErrorCode.OUTSIDE_WORKSPACE: (_PERMISSION, "use a path inside the workspace or /tmp"),
    ErrorCode.READ_ONLY: (_PERMISSION, "this place cannot be written; use the workspace or /tmp"),
    ErrorCode.PERMISSION_DENIED: (_PERMISSION, "the box's user may not do this; there is no sudo"),
    ErrorCode.NO_SPACE: (_ENVIRONMENT, "the box's disk is full; delete what is not needed"),
    ErrorCode.PIDS_EXHAUSTED: (_ENVIRONMENT, "too many processes; end some, or start fewer at once"),
    ErrorCode.TIMEOUT: (_ENVIRONMENT, "do less in one call, or give it more time"),
    ErrorCode.CANCELLED: (_ENVIRONMENT, "the call was stopped; call again if it is still needed"),
    ErrorCode.BUSY: (_ENVIRONMENT, "wait for other calls to end, then call again"),
    ErrorCode.IO_ERROR: (_ENVIRONMENT, "look at the path with list_files, then try once more"),
    ErrorCode.UNSUPPORTED: (_ENVIRONMENT, "this box cannot do it; take another way"),
}


def failed(
    code: str,
    message: str,
    *,
    status: ToolStatus = ToolStatus.ERROR,
    kind: str = "",
    hint: str = "",
    location: str = "",
    output: str = "",
) -> ToolResult:
    """A failure with its kind and a hint, the code's own where none is given."""
    known_kind, known_hint = _FAILURES.get(code, (_UNKNOWN, "look at the state before you try again"))
    # One line, and nothing in it that only looks like a line: parts of it are the box's words.
    message = visible(message, limit=1000)
    hint = visible(hint or known_hint, limit=4000)  # room for a list of tools
    info = ErrorInfo(kind=kind or known_kind, code=code, message=message, location=location, suggestion=hint)
    return ToolResult(
        success=False, status=status, output=output, error=info, summary=f"{code}: {message}", recovery_hint=hint
    )


def describe_failure(error: ToolError) -> ToolResult:
    """What a model is told of an error it can act on."""
    status = ToolStatus.TIMEOUT if error.code == ErrorCode.TIMEOUT else ToolStatus.ERROR
    # The box's own hint stays out: what is not wrapped must be our word. The path is in the message.
    details = [_describe_detail(name, value) for name, value in error.data.items() if name not in ("hint", "path")]
    return failed(error.code, error.message, status=status, hint=error.hint or "", output="\n".join(details))


def _describe_detail(name: str, value: object) -> str:
    if isinstance(value, list):
        return "\n".join([f"{name}:", *(_describe_detail("", item) for item in value)])
    if isinstance(value, dict):
        inner = {key: item for key, item in value.items() if key != "text"}
        facts = ", ".join(f"{key} {item}" for key, item in inner.items())
        return f"{facts}\n{value['text']}" if "text" in value else facts
    return f"{name}: {value}" if name else str(value)


def render_result(result: ToolResult) -> str:
    """The text that answers the call in the conversation: facts of ours around output that is wrapped as untrusted."""
    lines = [f"status: {result.status.value}"]
    if result.error is not None:
        where = f" ({result.error.location})" if result.error.location else ""
        lines.append(f"error: {result.error.code}{where}: {result.error.message}")
    elif result.summary:
        lines.append(result.summary)
    if result.output:
        lines.append(result.output)
    if result.truncation is not None and result.truncation.full_at:
        cut = result.truncation
        lines.append(f"shown: {cut.shown_bytes} of {cut.total_bytes} bytes; the whole is at {cut.full_at}")
    if result.recovery_hint:
        lines.append(f"hint: {result.recovery_hint}")
    lines += [f"next: {action}" for action in result.next_actions]
    return "\n".join(lines)
