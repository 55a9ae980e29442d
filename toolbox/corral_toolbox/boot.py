"""How the first process starts, and how it ends: the box with it."""

import os
import resource
import sys
import time

from corral_protocol.framing import FrameError
from corral_toolbox.channel import wire
from corral_toolbox.channel.outbox import HostGone, Outbox
from corral_toolbox.channel.stream import widen_pipe
from corral_toolbox.forked.child import tell_crash
from corral_toolbox.kernel import disposition, process, syscall
from corral_toolbox.loop import Loop
from corral_toolbox.server import End, Server

_EPOLLIN = 1
_FLUSH_S = 0.25
_OPEN_FILES = 65536
_OUT_PIPE_BYTES = 256 << 10
"""So that the engine is woken for whole batches; what a control message may have to wait behind grows with it."""
_VIOLATION, _CRASH, _USAGE = 65, 70, 64


def _prepare() -> int:
    """Lock this process down; returns the soft limit of open files that commands get."""
    syscall.set_nondumpable()
    syscall.set_no_new_privs()
    os.setgroups([])
    os.umask(0o022)
    os.chdir("/")
    open_files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, open_files), hard))
    for fd in (0, 1, 2):
        os.set_blocking(fd, False)
    widen_pipe(1, _OUT_PIPE_BYTES)
    return open_files


def _run(loop: Loop) -> None:
    server = Server(loop, _prepare())
    signals = disposition.open_signal_pipe()
    loop.watch(signals, _EPOLLIN, lambda _: server.on_signal(signals))
    loop.watch(0, _EPOLLIN, server.on_readable)
    loop.run()


def main() -> None:
    """Be the box until the host has gone. Never returns."""
    # SECURITY: everything below signals -1: outside of a pid namespace that is the whole machine (test_server.py).
    if os.getpid() != 1:
        sys.stderr.write("corral-toolbox: only runs as the first process of a container\n")
        os._exit(_USAGE)
    loop = Loop(Outbox(1))
    status = _VIOLATION
    try:
        _run(loop)
    except End as end:
        status = end.status
        if status:
            tell_crash(end)
    except (wire.Violation, FrameError) as violation:
        tell_crash(violation)
    except HostGone:
        status = 0
    except BaseException as error:  # a bug must end the box, not leave a deaf one
        status = _CRASH
        tell_crash(error)
    finally:
        process.signal_all(process.SIGKILL)
        _flush_last(loop)
        os._exit(status)


def _flush_last(loop: Loop) -> None:
    """Answers that were given before the end still go out, if the host takes them at once."""
    deadline = time.monotonic() + _FLUSH_S
    try:
        while not loop.outbox.is_empty and time.monotonic() < deadline:
            loop.outbox.flush()
            if loop.outbox.is_blocked:
                time.sleep(0.005)
    except HostGone:
        pass
