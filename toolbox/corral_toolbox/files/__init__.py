"""File operations of the box. They run as the untrusted user, on a workspace that may change under their hands."""

from __future__ import annotations

from corral_protocol.failure import WireError
from corral_protocol.name import decode_name
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.edit import edit_file
from corral_toolbox.files.error_map import translate_os_error
from corral_toolbox.files.listing import list_files
from corral_toolbox.files.move import delete_file, move_file
from corral_toolbox.files.params import Params
from corral_toolbox.files.read import read_file
from corral_toolbox.files.resolve import FileEnv
from corral_toolbox.files.tree_put import put_tree
from corral_toolbox.files.tree_scan import scan_tree
from corral_toolbox.files.write import fetch_file, store_file, write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from corral_toolbox.files.stream import Reader, Writer

__all__ = ["FileEnv", "dispatch"]

# Names as in corral_protocol.message.Method, whose import costs a worker 20 ms (test_dispatch.py holds them equal).
_Reply = dict[str, object]


def _patch_files(params: Params, env: FileEnv) -> _Reply:
    from corral_toolbox.files.patch import patch_files  # late: with `re` and `enum` 1.5 MB of every file worker

    return patch_files(params, env)


_PLAIN: dict[str, Callable[[Params, FileEnv], _Reply]] = {
    "file.read": read_file,
    "file.write": write_file,
    "file.edit": edit_file,
    "file.patch": _patch_files,
    "file.move": move_file,
    "file.delete": delete_file,
    "file.list": list_files,
}
_FROM_HOST: dict[str, Callable[[Params, FileEnv, Reader], _Reply]] = {
    "file.store": store_file,
    "tree.put": put_tree,
}
_TO_HOST: dict[str, Callable[[Params, FileEnv, Writer], _Reply]] = {
    "file.fetch": fetch_file,
    "tree.scan": scan_tree,
}


def dispatch(
    method: str, params: Params, env: FileEnv, reader: Reader | None = None, writer: Writer | None = None
) -> dict[str, object]:
    """Run one file operation and give its result as in corral_protocol.message. Raises WireError, or BrokenPipeError
    when the other end of the stream is gone.

    `reader` is the host's stream for file.store and tree.put, `writer` ours for file.fetch and tree.scan.
    """
    try:
        return _run(method, params, env, reader, writer)
    except BrokenPipeError:
        raise  # the host wants no more of the stream: nothing about a file
    except OSError as error:
        raise translate_os_error(error, _name_subject(params)) from error
    except MemoryError as error:
        raise WireError(ErrorCode.TOO_LARGE, "the operation needs more memory than there is") from error


def _run(method: str, params: Params, env: FileEnv, reader: Reader | None, writer: Writer | None) -> _Reply:
    if plain := _PLAIN.get(method):
        return plain(params, env)
    if from_host := _FROM_HOST.get(method):
        if reader is None:
            raise WireError(ErrorCode.INVALID_ARGUMENT, f"{method} needs a stream")
        return from_host(params, env, reader)
    if to_host := _TO_HOST.get(method):
        if writer is None:
            raise WireError(ErrorCode.INVALID_ARGUMENT, f"{method} needs a stream")
        return to_host(params, env, writer)
    raise WireError(ErrorCode.UNKNOWN_METHOD, f"no file operation is called {method!r}")


def _name_subject(params: Params) -> bytes:
    """The path an error is about, as far as the request names one."""
    for key in ("path", "source"):
        value = params.get(key)
        if isinstance(value, str) and value:
            try:
                return decode_name(value)
            except ValueError:
                return b"?"
    return b"the workspace"
