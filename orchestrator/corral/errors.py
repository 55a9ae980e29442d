"""Every error corral raises, in one file, grouped by who must act.

    CorralError
    ├── ConfigError            the user acts (exit 2): a wrong flag, file, path or value
    │   └── WorkspaceError     the workspace cannot be used as asked
    ├── ToolError              the model acts: becomes a ToolResult, never ends a run
    ├── ModelError             the router acts: another model, a retry, or a stop
    ├── SandboxError           the run stops and the box goes (exit 125 for exec, 3 for run)
    │   ├── EngineUnavailable  no engine answers, or it refuses us
    │   ├── EngineTimeout      the engine did not answer one call in its time
    │   ├── ImageError         the image is missing, cannot be built or cannot host the toolbox
    │   ├── SandboxProtocolError  the box broke a rule of the channel
    │   └── BoxLost            the channel or the container is gone; `cause` says why
    ├── SetupFailed            the set-up of a run did not end with 0: the agent was not asked
    ├── RecordError            the record cannot be written, read or trusted
    ├── RemovalBlocked         a run's files belong to root: a trusted container may remove them
    └── PatchError             the reviewer acts
        ├── PatchInvalid       it is not a patch, or one we refuse
        └── PatchConflict      it does not fit the workspace as it is now

An exit code, a denial and a stop limit are values, not errors. The message says what failed, with the value in
`!r`; `hint` says what to do about it. `code` is stable and documented in docs/reference/errors.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar


class CorralError(Exception):
    """Base of all errors a caller may want to catch.

    `message` says what failed; `hint` says what to do. Both are one line.
    """

    code: str = "error"
    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code


class ConfigError(CorralError):
    """The user's input cannot be used: a flag, a file, a field, a path."""

    code = "config"
    exit_code = 2


class WorkspaceError(ConfigError):
    """The workspace is missing, is not a directory, or must not be used like this."""

    code = "workspace"


class ToolError(CorralError):
    """A tool call failed in a way the model can act on. `code` is one of `corral_protocol.ErrorCode`."""

    code = "tool"

    def __init__(
        self, message: str, *, hint: str | None = None, code: str | None = None, data: dict[str, object] | None = None
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.data = data or {}


class ModelError(CorralError):
    """The model endpoint failed; `code` names the cause.

    auth, quota, not_found, rate_limit, unreachable, timeout, server_error, context_overflow, bad_request,
    no_tool_support, empty_response, bad_response; script for a scripted model whose script does not fit. What a useless
    answer has used up is told, so that it can be charged: `tokens` (in and out) and `cost_usd`.
    """

    code = "model"
    transient_codes: ClassVar[frozenset[str]] = frozenset(
        {"rate_limit", "unreachable", "timeout", "server_error", "empty_response", "bad_response"}
    )

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        tokens: tuple[int, int] = (0, 0),
        cost_usd: float | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.retry_after_s = retry_after_s
        self.tokens = tokens
        self.cost_usd = cost_usd

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in self.transient_codes


class SandboxError(CorralError):
    """The box cannot be started or kept."""

    code = "sandbox"


class EngineUnavailable(SandboxError):
    code = "engine_unavailable"


class EngineTimeout(SandboxError):
    code = "engine_timeout"
    retryable = True


class ImageError(SandboxError):
    code = "image"


class SandboxProtocolError(SandboxError):
    """The box broke a rule of the channel. It is not argued with: the box ends."""

    code = "protocol"


class BoxLost(SandboxError):
    """The box ended under us. `cause` is one of the failure causes of SPEC (oom, killed, engine_lost, box_lost)."""

    code = "box_lost"

    def __init__(self, message: str, *, hint: str | None = None, cause: str = "box_lost") -> None:
        super().__init__(message, hint=hint)
        self.cause = cause


class SetupFailed(CorralError):
    """The set-up of a run did not end with 0: the agent was never asked."""

    code = "setup"


class RecordError(CorralError):
    code = "record"


class RemovalBlocked(CorralError):
    """Something of a run cannot be removed by this user. `path` is the directory to remove as root."""

    code = "removal_blocked"

    def __init__(self, message: str, *, path: Path, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path


class PatchError(CorralError):
    code = "patch"
    exit_code = 2


class PatchInvalid(PatchError):
    code = "patch_invalid"


class PatchConflict(PatchError):
    """The workspace changed underneath. `paths` are the files in conflict, workspace-relative, printable."""

    code = "patch_conflict"

    def __init__(self, message: str, *, hint: str | None = None, paths: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.paths = paths
