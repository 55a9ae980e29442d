"""Reads what a waiting thread is about to do: the program and its arguments, or the address. Everything is a claim.

The thread's memory can change between this look and the kernel's own: a record, not an enforcement. The caller has
lent this process's file-system ids to the untrusted user, so that the kernel shows exactly what is that user's.
"""

import _socket
import os

from corral_protocol.name import encode_name
from corral_toolbox.kernel import notify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_toolbox.channel.wire import Message

NOT_FOUND, UNREADABLE, MEMORY, DELETED = "not_found", "unreadable", "memory", "deleted"
MAX_PATH, MAX_ARGUMENT, MAX_ARGUMENTS, MAX_ARGV = 1024, 1024, 48, 4096
_MAX_LINKS = 8
_MAX_ADDRESS = 128
_AT_FDCWD = -100
_OWN = b"/proc/%d"
_WINDOW = 2048
_NEAR, _TAIL = 8 << 10, 256
_FIXED = (b"/usr/", b"/bin/", b"/sbin/", b"/lib/")
"""Below these nothing untrusted can put a link, or anything else; the root of the box is read-only."""
_MAX_FIXED = 512
_POINTERS = 8 * (MAX_ARGUMENTS + 1)
_OPEN_DIRECTORY = os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY


def read_identity(thread: int) -> tuple[int, int]:
    """Process and parent of a thread; zeros when it has gone."""
    try:
        # Read for every event, and `status` costs the kernel half as much again.
        text = _read_file(f"/proc/{thread}/stat", 512)
        # The command's name is the process's own choice and may hold spaces and brackets: fields follow the last one.
        fields = text[text.rindex(b")") + 2 :].split(b" ", 18)
        parent = int(fields[1])
        if fields[17] == b"1":
            return thread, parent  # the only thread of its process bears its number
        text = _read_file(f"/proc/{thread}/status", 320)
        # The first line is the process's own choice, but the kernel escapes line ends in it.
        return int(text.partition(b"\nTgid:\t")[2].partition(b"\n")[0]), parent
    except (OSError, ValueError, IndexError):
        return 0, 0


def _read_file(path: str, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)


class Memory:
    """The memory of a waiting thread. Raises OSError where it may not be read."""

    def __init__(self, thread: int) -> None:
        self._fd = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        self._at = 0
        self._window = b""
        """The last piece that was read: path and arguments lie side by side most of the time."""

    def close(self) -> None:
        os.close(self._fd)

    def read(self, address: int, size: int) -> bytes:
        if not 0 < address < 1 << 63:
            raise OSError("no address of a process")
        return os.pread(self._fd, size, address)

    def read_text(self, address: int, limit: int) -> tuple[bytes, bool]:
        """A string up to its NUL, and whether it was cut."""
        start = address - self._at
        end = self._window.find(b"\0", start, start + limit + 1) if 0 <= start < len(self._window) else -1
        if end < 0:
            self._window = self.read(address, max(_WINDOW, limit + 1))
            self._at, start = address, 0
            end = self._window.find(b"\0", 0, limit + 1)
        if end >= 0:
            return self._window[start:end], False
        return _cut(self._window[:limit]), True

    def read_exec(self, name_at: int, argv_at: int) -> tuple[bytes, list[bytes], bool]:
        """Path and arguments, and whether anything was cut."""
        pointers: list[int] = []
        if argv_at:
            table = memoryview(self.read(argv_at, _POINTERS))
            pointers = table[: len(table) & ~7].cast("Q").tolist()
        count = pointers.index(0) if 0 in pointers else MAX_ARGUMENTS
        is_cut = bool(pointers) and 0 not in pointers
        self._fetch([name_at, *pointers[:count]])
        path, path_is_cut = self.read_text(name_at, MAX_PATH)
        argv: list[bytes] = []
        left = MAX_ARGV
        for pointer in pointers[:count]:
            word, word_is_cut = self.read_text(pointer, min(MAX_ARGUMENT, left))
            argv.append(word)
            left -= len(word) + 1
            if word_is_cut or left <= 0:
                is_cut |= word_is_cut or len(argv) < count
                break
        return path, argv, is_cut or path_is_cut

    def _fetch(self, places: list[int]) -> None:
        """Texts that lie near one another, as most of the time, by one read."""
        first, last = min(places), max(places)
        if last - first < _NEAR:
            self._window = self.read(first, last - first + _TAIL)
            self._at = first


def bound_argv(argv: list[bytes]) -> tuple[list[bytes], bool]:
    """Arguments as far as they are kept, and whether that is not all of them."""
    kept: list[bytes] = []
    left = MAX_ARGV
    for word in argv[:MAX_ARGUMENTS]:
        room = min(MAX_ARGUMENT, left)
        kept.append(word if len(word) <= room else _cut(word[:room]))
        left -= len(word) + 1
        if len(word) > room or left <= 0:
            break
    return kept, kept != argv


def _cut(raw: bytes) -> bytes:
    """Without the broken character at the end of a text that was cut."""
    for spare in range(4):
        try:
            raw[: len(raw) - spare].decode()
        except UnicodeDecodeError:
            continue
        return raw[: len(raw) - spare]
    return raw


def read_exec(memory: Memory, thread: int, call: int, arguments: tuple[int, ...], fixed: dict[bytes, str]) -> "Message":
    """What is to be executed: path, argv, directory, and what is odd about it.

    `fixed` keeps what was found of paths that nobody can change.
    """
    directory, name_at, argv_at = _AT_FDCWD, arguments[0], arguments[1]
    if call == notify.EXECVEAT:
        directory, name_at, argv_at = _as_int(arguments[0]), arguments[1], arguments[2]
    path, argv, is_cut = memory.read_exec(name_at, argv_at)
    cwd = os.readlink(f"/proc/{thread}/cwd".encode())
    if directory != _AT_FDCWD and not path.startswith(b"/"):
        base = b"/proc/%d/fd/%d" % (thread, directory)
        full = os.path.join(os.readlink(base), path) if path else base
        path = path or _read_link(base)
    else:
        full = os.path.join(cwd, path)
    event: Message = {
        "path": encode_name(path),
        "argv": [encode_name(word) for word in argv],
        "cwd": encode_name(cwd[:MAX_PATH]),
    }
    if is_cut or len(cwd) > MAX_PATH:
        event["cut"] = True
    if mark := _find_mark(thread, full, fixed):
        event["mark"] = mark
    return event


def _as_int(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _read_link(path: bytes) -> bytes:
    return os.readlink(path)[:MAX_PATH]


def _find_mark(thread: int, path: bytes, fixed: dict[bytes, str]) -> str:
    """Follow the path as the thread would: `self` in it is the thread, not us."""
    if path.startswith(_FIXED) and b".." not in path:
        mark = fixed.get(path)
        if mark is None:
            mark = "" if os.path.exists(path) else NOT_FOUND
            if len(fixed) < _MAX_FIXED:
                fixed[path] = mark
        return mark
    for _ in range(_MAX_LINKS):
        place = _find_place(thread, path)
        try:
            target = os.readlink(place)
        except FileNotFoundError:
            return NOT_FOUND
        except OSError:
            return ""  # no link: a file, where it says
        if place.startswith(b"/proc/"):
            if target.startswith(b"/memfd:"):
                return MEMORY
            if target.endswith(b" (deleted)"):
                return DELETED
        path = os.path.join(os.path.dirname(place), target)
    return ""


def _find_place(thread: int, path: bytes) -> bytes:
    """The path with its directory resolved; our own entries in /proc become the thread's."""
    parent, _, name = path.rpartition(b"/")
    try:
        fd = os.open(parent or b"/", _OPEN_DIRECTORY)
    except OSError:
        return path
    try:
        found = os.readlink(b"/proc/self/fd/%d" % fd)
    finally:
        os.close(fd)
    own = _OWN % os.getpid()
    if found == own or found.startswith(own + b"/"):
        rest = found[len(own) :]
        task = b"/task/%d" % os.getpid()
        if rest.startswith(task):
            rest = rest[len(task) :]
        found = _OWN % thread + rest
    return found.rstrip(b"/") + b"/" + name


def read_connection(memory: Memory, thread: int, call: int, arguments: tuple[int, ...]) -> "Message | None":
    """Whom a socket is pointed at; None for what reaches nobody (a kernel interface, an undone connection)."""
    if call in (notify.SENDMSG, notify.SENDMMSG):
        message = memory.read(arguments[1], 12)
        place, size = int.from_bytes(message[:8], "little"), int.from_bytes(message[8:], "little")
    else:
        place, size = (arguments[4], arguments[5]) if call == notify.SENDTO else (arguments[1], arguments[2])
    size = min(_as_int(size), _MAX_ADDRESS)
    raw = memory.read(place, size) if size > 0 else b""
    family = int.from_bytes(raw[:2], "little")
    if family == _socket.AF_UNIX:
        name = raw[2:]
        name = b"@" + name[1:].rstrip(b"\0") if name[:1] == b"\0" else name.partition(b"\0")[0]
        return {"protocol": "unix", "host": encode_name(name.replace(b"\0", b"@"))}
    if family == _socket.AF_INET and len(raw) >= 8:
        host = _socket.inet_ntop(family, raw[4:8])
    elif family == _socket.AF_INET6 and len(raw) >= 24:
        host = _socket.inet_ntop(family, raw[8:24])
    else:
        return None
    protocol = _read_protocol(thread, _as_int(arguments[0]))
    return {"protocol": protocol, "host": host, "port": int.from_bytes(raw[2:4], "big")}


def _read_protocol(thread: int, fd: int) -> str:
    """What the kernel calls the socket: `tcp`, `udp`, `ping`, or `ip` when it does not say."""
    try:
        name = os.getxattr(f"/proc/{thread}/fd/{fd}", "system.sockprotoname")
    except OSError:
        return "ip"
    return name.rstrip(b"\0").decode("ascii", "replace").lower().removesuffix("v6")[:16] or "ip"


def describe_socket(arguments: tuple[int, ...]) -> "Message":
    """A datagram or raw socket of an internet family: it can send without a further call that is looked at."""
    kind, protocol = arguments[1] & 0xF, _as_int(arguments[2])
    if kind != _socket.SOCK_DGRAM:
        return {"protocol": "raw"}
    return {"protocol": "ping" if protocol in (_socket.IPPROTO_ICMP, 58) else "udp"}
