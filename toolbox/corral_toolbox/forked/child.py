"""What a forked process does before it is what it is for: descriptors, signals, and the way out."""

import os

from corral_toolbox.kernel import disposition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CONTROL_FD = 3
"""Where a forked process finds its socket to the first process; never inherited by a program."""


def fork_into(control_fd: int, body: "Callable[[], None]") -> int:
    """Fork; the child runs `body` with nothing but stderr and its control socket, and ends. Returns the pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        _keep_only(control_fd)
        disposition.reset_in_fork()
        body()
    except BaseException as error:  # the last word of a process that has nobody to raise to
        tell_crash(error)
    finally:
        os._exit(70)


def _keep_only(control_fd: int) -> None:
    # SECURITY: the trust line (0 and 1) and every other call's pipes end here (test_exec_isolation.py).
    if control_fd != CONTROL_FD:
        os.dup2(control_fd, CONTROL_FD, inheritable=False)
    os.closerange(CONTROL_FD + 1, 1 << 20)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def tell_crash(error: BaseException) -> None:
    """A line for the container's stderr, the crash log; never blocks because the first process made it so."""
    where = []
    trace = error.__traceback__
    while trace is not None:
        where.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    line = f"corral-toolbox[{os.getpid()}]: {type(error).__name__}: {error} at {' > '.join(where)}\n"
    try:
        os.write(2, line.encode("utf-8", "backslashreplace")[:4096])
    except OSError:
        pass
