"""Messages of the channel: params and results of every method, as frozen dataclasses.

Methods are named in `Method`. Requests go from host to box unless said otherwise. `name` in a comment means the wire
form of corral_protocol.name. The host validates everything it receives with strict TypeAdapters over these classes;
the box validates with its own small checks. Sizes are bytes, times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Method(StrEnum):
    HELLO = "hello"  # Hello -> HelloReply; must be the first request
    PING = "ping"  # {} -> Pong; renews the lease
    EXEC = "exec"  # Exec -> ExecResult; answered when the command's own process has ended
    CANCEL = "exec.cancel"  # Cancel -> {}; kills that exec's whole tree, its exec answers with status `killed`;
    # after the answer it ends what runs on in the background. A file request answers `cancelled`. Never an error.
    GO = "exec.go"  # notification, host to box: Go; lets an exec that is held start
    SIGNAL = "exec.signal"  # notification, host to box: Signal; to what is in the foreground of a running exec
    RESIZE = "exec.resize"  # notification, host to box: Resize; of a running exec's terminal
    FREEZE = "freeze"  # {} -> FreezeReply; every untrusted process is stopped when it answers
    THAW = "thaw"  # {} -> {}
    KILL_ALL = "kill_all"  # {} -> {}; every untrusted process is gone when it answers
    STATS = "stats"  # {} -> Stats
    READ = "file.read"  # FileRead -> FileContent: the model's view, with line numbers
    WRITE = "file.write"  # FileWrite -> FileChanged
    EDIT = "file.edit"  # FileEdit -> FileChanged
    PATCH = "file.patch"  # FilePatch -> PatchResult
    MOVE = "file.move"  # FileMove -> FileChanged
    DELETE = "file.delete"  # FileDelete -> FileChanged
    LIST = "file.list"  # FileList -> Listing
    FETCH = "file.fetch"  # FileFetch -> FetchReply; the raw bytes follow on the stream named in the request
    STORE = "file.store"  # FileStore -> FileChanged; the host sends the raw bytes on the stream
    TREE_PUT = "tree.put"  # TreePut -> TreePutReply; tar (GNU/PAX) from the host on the stream, into the workspace
    TREE_SCAN = "tree.scan"  # TreeScan -> TreeScanReply; JSON lines of TreeEntry on the stream, box to host
    LISTEN = "tunnel.listen"  # TunnelListen -> TunnelPorts; once in a box's life
    DIAL = "tunnel.dial"  # TunnelDial -> {}; when answered the stream is open, or there will be none
    OPEN = "stream.open"  # notification, box to host: StreamOpen
    # notifications, both directions
    CREDIT = "stream.credit"  # Credit: the receiver of the stream lets the sender send so many bytes more
    CLOSE = "stream.close"  # StreamClose: the sender of the stream has sent all
    RESET = "stream.reset"  # StreamReset, tunnels only: its sender takes no more; answered by the other's close
    LOG = "log"  # box to host: LogLine, for the crash log only
    EVENTS = "process.events"  # box to host: ProcessEvents of an exec, also after its answer, until its last process


INITIAL_CREDIT = 256 << 10
"""Bytes a sender may send on a new stream before the first `stream.credit`."""


@dataclass(frozen=True)
class Hello:
    protocol: int
    uid: int  # the untrusted user
    gid: int
    workspace: str = "/workspace"  # name
    home: str = "/home/box"  # name; made by the toolbox on its tmpfs, owned by the untrusted user
    env: dict[str, str] = field(default_factory=dict)  # base environment of every command
    lease_s: float = 60.0  # without any frame for so long the box ends itself
    spare_supervisors: int = 2
    max_calls: int = 64  # concurrent calls; more answer `busy`
    watch: bool = True  # tell what is started and connected to


@dataclass(frozen=True)
class HelloReply:
    protocol: int
    version: str
    boot_id: str  # /proc/sys/kernel/random/boot_id as the box sees it
    python: str
    has_shell: str  # absolute path of the shell used for `shell` calls, "" when there is none
    workspace_root: list[RootEntry] = field(default_factory=list)  # first 256 names of the workspace, sorted
    capabilities: list[str] = field(default_factory=list)
    cgroup: str = ""  # "v1", "v2" or "" as seen from inside


@dataclass(frozen=True)
class RootEntry:
    name: str  # name
    mode: int  # st_mode
    size: int
    mtime_ns: int
    ctime_ns: int = 0  # when inode or content last changed: nobody can set it


@dataclass(frozen=True)
class Exec:
    argv: list[str]  # names; for shell=True exactly one: the command line
    shell: bool = False
    cwd: str = ""  # name; "" means the workspace
    env: dict[str, str] = field(default_factory=dict)  # on top of the base environment
    timeout_s: float | None = None
    stdin: int = 0  # stream id the host will send on; 0 means end-of-file at once
    stdout: int = 0  # stream id for the full output; 0: not streamed
    stderr: int = 0
    merge_stderr: bool = False
    head_bytes: int = 16 << 10  # kept for the reply, per stream
    tail_bytes: int = 16 << 10
    stream_limit: int = 64 << 20  # bytes streamed per stream, further output is counted and dropped; -1: no limit
    kill_background: bool = False  # when the command ends, end its descendants too before answering
    umask: int = 0o022
    rows: int = 0  # both above 0: stdin, stdout and stderr are a pseudo-terminal of this size, and the session's own
    columns: int = 0
    hold: bool = False  # prepare everything, and start only after `exec.go`; the time limit counts from there


@dataclass(frozen=True)
class Go:
    id: int  # of the exec request; one that is over is no error


MAX_TERMINAL_SIDE = 1000
"""Rows and columns of a terminal, at most."""


@dataclass(frozen=True)
class Signal:
    id: int  # of the exec request; one that is over is no error
    signal: int


@dataclass(frozen=True)
class Resize:
    id: int
    rows: int
    columns: int


class ExecStatus(StrEnum):
    EXITED = "exited"
    SIGNALED = "signaled"
    TIMEOUT = "timeout"
    KILLED = "killed"  # by exec.cancel, kill_all
    NOT_STARTED = "not_started"


@dataclass(frozen=True)
class Capture:
    """One output stream: the first and last bytes, and how many there were."""

    head_b64: str = ""
    tail_b64: str = ""  # empty when head holds everything
    total_bytes: int = 0
    streamed_bytes: int = 0
    closed: bool = False  # the stream ends with these bytes, and no StreamClose follows


@dataclass(frozen=True)
class ExecResult:
    status: ExecStatus
    exit_code: int = 0  # of the command; 127 not found, 126 not runnable when not_started
    signal: int = 0
    cwd: str = ""  # name; where the shell was at its end, "" when unknown
    notices: list[str] = field(default_factory=list)  # e.g. "cwd was removed, now in /workspace"
    stdout: Capture = field(default_factory=Capture)
    stderr: Capture = field(default_factory=Capture)
    duration_s: float = 0.0
    background: int = 0  # descendants still alive when the call answered
    oom_kills: int = 0  # cgroup counter, difference over the call
    pids_refused: int = 0  # cgroup pids.events max, difference over the call
    # Of its reaped descendants. Who is never waited for (a parent that ignores SIGCHLD) is missing.
    user_s: float = 0.0
    system_s: float = 0.0
    max_rss: int = 0  # of the largest process; at least that of the supervisor, from which it was forked
    written_bytes: int = 0  # to files on a disk, as they were changed in memory; nothing of a tmpfs
    programs: int = 0  # processes that ran a program; 0 where no process is watched
    programs_peak: int = 0  # of these, at once
    full: list[str] = field(default_factory=list)  # after a failure: places without room, of FULL_PLACES


FULL_PLACES = ("workspace", "tmp", "home", "shm")


@dataclass(frozen=True)
class Cancel:
    id: int  # JSON-RPC id of the exec or file request


@dataclass(frozen=True)
class FreezeReply:
    stopped: int
    unstoppable: int = 0


@dataclass(frozen=True)
class Pong:
    uptime_s: float
    used_bytes: int = 0  # of the whole file system that the workspace's changes lie on
    used_inodes: int = 0
    free_bytes: int = 0


@dataclass(frozen=True)
class Stats:
    processes: int
    zombies: int
    calls: int
    rss: int  # of the first process
    pss: int  # of all toolbox processes, 0 where the kernel does not say
    memory_current: int = 0
    memory_peak: int = 0
    oom_kills: int = 0
    pids_refused: int = 0
    # Since the box began, the toolbox's own included
    user_s: float = 0.0
    system_s: float = 0.0
    tasks_peak: int = 0  # processes and threads at once; 0 where the kernel does not count it
    # Of all calls together
    programs: int = 0
    written_bytes: int = 0
    full: list[str] = field(default_factory=list)  # places without room, of FULL_PLACES


@dataclass(frozen=True)
class FileRead:
    path: str  # name; relative paths are relative to the workspace
    offset: int | None = None  # text: first line, 1-based; binary: byte offset
    limit: int | None = None  # text: lines; binary: bytes
    max_bytes: int = 32 << 10  # of text in the reply
    max_line: int = 2000  # characters of one line; longer ones are cut with a mark


@dataclass(frozen=True)
class FileContent:
    path: str  # name, absolute, links resolved
    kind: str  # "text", "binary" or "empty"
    size: int
    text: str = ""  # "     1\tline\n..." ; control characters made visible; binary with an offset: a hex dump
    first_line: int = 0
    last_line: int = 0
    total_lines: int | None = None  # None when the file was not read to its end
    encoding: str = ""  # "utf-8", "utf-16-le", "utf-16-be", "latin-1?" ...
    bom: bool = False
    newline: str = ""  # "lf", "crlf", "cr", "mixed", "" for one line
    final_newline: bool = True
    truncated: bool = False
    sha256: str = ""  # for files up to 64 MiB
    mode: int = 0


@dataclass(frozen=True)
class FileWrite:
    path: str
    content_b64: str
    overwrite: bool = True
    make_parents: bool = True
    mode: int | None = None  # for new files; None: 0644 under umask
    if_sha256: str = ""  # refuse with patch_conflict if the file now hashes to something else


@dataclass(frozen=True)
class EditStep:
    old: str
    new: str
    replace_all: bool = False


@dataclass(frozen=True)
class FileEdit:
    path: str
    edits: list[EditStep]


@dataclass(frozen=True)
class FileChanged:
    path: str  # name, absolute
    action: str  # created, modified, moved, deleted, unchanged
    size: int = 0
    sha256: str = ""
    replaced: int = 0  # edits: number of replacements
    diff: str = ""  # unified diff of a text change, at most 8 KiB, control characters made visible
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FilePatch:
    text_b64: str  # unified diff or *** Begin Patch, detected
    dry_run: bool = False
    overwrite: bool = False  # allow *** Add File and Move targets that exist


@dataclass(frozen=True)
class PatchResult:
    files: list[FileChanged]
    notices: list[str] = field(default_factory=list)  # tolerances used
    dry_run: bool = False


@dataclass(frozen=True)
class FileMove:
    source: str
    target: str
    overwrite: bool = False
    make_parents: bool = True


@dataclass(frozen=True)
class FileDelete:
    path: str
    recursive: bool = False


@dataclass(frozen=True)
class FileList:
    path: str = ""
    depth: int = 1
    limit: int = 1000
    include_hidden: bool = True


@dataclass(frozen=True)
class ListEntry:
    path: str  # name, relative to the listed directory
    kind: str  # file dir symlink fifo socket device
    size: int = 0
    mode: int = 0
    target: str = ""  # name, for symlinks


@dataclass(frozen=True)
class Listing:
    path: str
    entries: list[ListEntry]
    truncated: bool = False
    total: int = 0


@dataclass(frozen=True)
class FileFetch:
    path: str
    stream: int
    offset: int = 0
    limit: int = -1


@dataclass(frozen=True)
class FetchReply:
    path: str
    size: int  # of the file when opened
    sent: int  # bytes put on the stream
    mode: int = 0


@dataclass(frozen=True)
class FileStore:
    path: str
    stream: int
    size: int  # bytes that will follow; anything else fails and leaves the old bytes
    mode: int | None = None
    overwrite: bool = True
    make_parents: bool = True


@dataclass(frozen=True)
class TreePut:
    stream: int
    max_bytes: int
    max_entries: int


@dataclass(frozen=True)
class TreePutReply:
    entries: int
    bytes: int


@dataclass(frozen=True)
class TreeScan:
    stream: int
    path: str = ""
    hash_files: bool = True


@dataclass(frozen=True)
class TreeEntry:
    path: str  # name, relative
    kind: str  # file dir symlink fifo socket device
    mode: int
    size: int
    mtime_ns: int
    sha256: str = ""  # regular files, when asked for
    target: str = ""  # name, symlinks
    error: str = ""  # an ErrorCode when it could not be read, or is too deep or too large: what is below is missing
    blocks: int = 0  # of 512 bytes on the disk; only where files are not hashed


@dataclass(frozen=True)
class TreeScanReply:
    entries: int


@dataclass(frozen=True)
class Credit:
    stream: int
    bytes: int


@dataclass(frozen=True)
class StreamClose:
    stream: int
    total: int  # bytes sent on this stream
    error: str = ""  # an ErrorCode when the stream ended early


class EventMark(StrEnum):
    """What is odd about an event."""

    NONE = ""
    NOT_FOUND = "not_found"  # there was no such program when it was looked for
    UNREADABLE = "unreadable"  # the process does not let itself be read
    MEMORY = "memory"  # a program that is in no file
    DELETED = "deleted"  # a program whose file has no name any more


class EventKind(StrEnum):
    EXEC = "exec"  # execve, execveat
    CONNECT = "connect"
    BIND = "bind"
    SEND = "send"  # sendto with an address
    SOCKET = "socket"  # a datagram or raw socket of an internet family: what it sends later is not seen


@dataclass(frozen=True)
class ProcessEvent:
    """A call that a process of the box was about to make. Whether it succeeded is not known."""

    kind: EventKind
    pid: int  # in the box; 0 when the process had gone
    parent: int
    uid: int
    path: str = ""  # name, of exec; as given, relative to cwd
    argv: list[str] = field(default_factory=list)  # names
    cwd: str = ""  # name
    cut: bool = False  # path, argv or cwd is not whole
    protocol: str = ""  # tcp, udp, unix, ...
    host: str = ""  # name: an address, or the path of a unix socket, "@..." when it is abstract
    port: int = 0
    errno: int = 0  # what the supervisor answered; 0: it let the call go on
    mark: EventMark = EventMark.NONE


@dataclass(frozen=True)
class ProcessEnd:
    """A process that was told of has ended: with a code, by a signal, or nobody knows how."""

    pid: int
    lived_s: float  # since its first program began, as far as was seen: up to 0.02 s more while the box is busy
    exit_code: int | None = None
    signal: int = 0


@dataclass(frozen=True)
class ProcessEvents:
    id: int  # of the exec
    dropped: int  # events of this exec that were not kept, so far
    events: list[ProcessEvent] = field(default_factory=list)
    ends: list[ProcessEnd] = field(default_factory=list)  # not of the command itself: its exec's answer tells it


MAX_EVENTS = 40_000
"""Of one exec, and as many ends; a box that sends more breaks the rules."""


FIRST_OPENED_STREAM = 1 << 31
"""From here up the box numbers the streams it opens, one by one."""
FIRST_DIALED_STREAM = 3 << 30
"""From here up the host numbers its streams to ports of the box. Streams of calls are below both."""


@dataclass(frozen=True)
class TunnelListen:
    """Ports on the box's loopback; each connection to one is a stream in both directions."""

    listeners: int
    max_streams: int  # at once, dialed ones included; further connections wait


@dataclass(frozen=True)
class TunnelPorts:
    ports: list[int]  # one per listener


@dataclass(frozen=True)
class TunnelDial:
    stream: int
    port: int  # of the box's loopback


@dataclass(frozen=True)
class StreamOpen:
    stream: int
    listener: int  # index into TunnelPorts.ports


@dataclass(frozen=True)
class StreamReset:
    stream: int


@dataclass(frozen=True)
class LogLine:
    text: str
