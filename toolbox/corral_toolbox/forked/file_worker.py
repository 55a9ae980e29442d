"""A worker answers file requests one after the other, with the untrusted user's file-system ids.

Its real ids stay the toolbox's, so that no command can signal or trace it. Requests come as the payload the host sent,
with the pipe of their stream attached; answers go back as whole frames, which the first process passes on unread.
"""

import _socket
import os

from corral_protocol.framing import HEADER
from corral_toolbox.channel import wire
from corral_toolbox.forked.child import CONTROL_FD, tell_crash
from corral_toolbox.kernel import syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_toolbox.files import FileEnv


class PipeReader:
    """The host's bytes, in order; b"" at their end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self, size: int) -> bytes:
        return os.read(self._fd, size)


class PipeWriter:
    """Bytes for the host; blocks while it gives no credit. Raises BrokenPipeError when it wants no more."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: "bytes | bytearray | memoryview") -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]


def run_worker(uid: int, gid: int, workspace: bytes, roots: list[tuple[bytes, bool]]) -> None:
    """Serve until the first process closes the socket."""
    os.umask(0o022)
    from corral_toolbox import files  # late: the first process has no use for it

    # SECURITY: whatever a path leads to, the kernel judges it as the untrusted user (test_file_requests.py).
    syscall.lend_ids(uid, gid)
    env = files.FileEnv(workspace=workspace, roots=roots)
    control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, CONTROL_FD)
    while True:
        payload, fd = _receive(control)
        if not payload:
            return
        try:
            frame = _serve(payload, fd, env, uid, gid)
        finally:
            if fd >= 0:
                os.close(fd)
        control.sendall(frame)


def _receive(control: _socket.socket) -> tuple[bytes, int]:
    data, ancillary, _, _ = control.recvmsg(64 << 10, 64, _socket.MSG_CMSG_CLOEXEC)
    fd = int.from_bytes(ancillary[0][2][:4], "little") if ancillary else -1
    while data and (len(data) < 4 or len(data) < 4 + HEADER.unpack_from(data)[0]):
        more = control.recv(1 << 20)
        if not more:
            return b"", fd
        data += more
    return data[4:], fd


def _open_workspace(workspace: bytes, uid: int, gid: int) -> None:
    """Let the untrusted user fill the workspace: the root of an engine's plain volume belongs to root, and there is no
    capability to give it away. The box has no other user, so open to everybody is as good."""
    if os.lstat(workspace).st_uid != 0:
        return  # the user's own, which may be closed to root: it has no right over others' files
    syscall.lend_ids(0, 0)
    try:
        root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(root).st_uid == 0:
                os.fchmod(root, 0o777)
        finally:
            os.close(root)
    finally:
        syscall.lend_ids(uid, gid)


def _serve(payload: bytes, fd: int, env: "FileEnv", uid: int, gid: int) -> bytes:
    from corral_protocol.failure import WireError  # late: with `files`
    from corral_toolbox import files

    message = wire.parse_message(payload)
    request_id, method, params = message["id"], message["method"], message["params"]
    assert type(request_id) is int and type(method) is str and type(params) is dict
    reader = PipeReader(fd) if method in wire.RECEIVING else None
    writer = PipeWriter(fd) if method in wire.SENDING else None
    try:
        if method == wire.TREE_PUT:
            _open_workspace(env.workspace, uid, gid)
        return wire.encode_result(request_id, files.dispatch(method, params, env, reader, writer))
    except WireError as error:
        return wire.encode_error(request_id, str(error.code), error.message, error.data)
    except BrokenPipeError:
        return wire.encode_error(request_id, wire.CANCELLED, "the stream was closed")
    except OSError as error:
        return wire.encode_error(request_id, wire.IO_ERROR, f"{error.strerror}", {"errno": error.errno})
    except (TypeError, KeyError, ValueError, AttributeError, RecursionError, MemoryError) as error:
        tell_crash(error)
        return wire.encode_error(request_id, wire.INTERNAL, f"{type(error).__name__}: {error}")
