"""Signal dispositions of the first process, of its forks, and of what they become. `signal` itself imports enum."""

import os

from corral_toolbox.kernel.syscall import reset_library_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

SIGTERM = 15
_HANDLED = (_signal.SIGCHLD, _signal.SIGTERM)


def open_signal_pipe() -> int:
    """SIGCHLD and SIGTERM as bytes on the returned descriptor; an interrupt from a terminal is ignored."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in _HANDLED:
        _signal.signal(number, _note)
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    return reader


def _note(number: int, frame: object) -> None:
    """Nothing: the pipe has the number."""


def reset_in_fork() -> None:
    """A fork listens to no signal pipe and dies of what is meant to kill it."""
    _signal.set_wakeup_fd(-1)
    for number in (*_HANDLED, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)


def reset_before_exec() -> None:
    """Python ignores two signals, who started it may have ignored others, and a program would inherit that."""
    for number in _signal.valid_signals():
        if _signal.getsignal(number) == _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_DFL)
    reset_library_signals()
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
