"""What the attempts have in common: the targets they were told, and the honest report of each."""

import ctypes
import errno
import json
import os
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
ROOT = Path(__file__).resolve().parent.parent
TARGETS = json.loads((ROOT / "targets.json").read_text())
"""What an attacker may well know: where keys lie on this host, which port of it listens."""


def report(attempt, **facts):
    """One line for the demonstration."""
    print("hostile-report " + json.dumps({"attempt": attempt, **facts}), flush=True)


def reason(error):
    """The name of an error."""
    number = getattr(error, "errno", None)
    return errno.errorcode.get(number, "") or type(error).__name__


def each(attempt, **actions):
    """Try every action; report which were done, and how the others were refused."""
    done, refused = [], {}
    for name, action in actions.items():
        try:
            action()
        except (OSError, ValueError) as error:
            refused[name] = reason(error)
        else:
            done.append(name)
    report(attempt, done=done, refused=refused)


def call(number, *arguments):
    """A system call by number; raises OSError."""
    if LIBC.syscall(number, *arguments) == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def read_if_there(path):
    """The text of a file, or None."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None


def in_child(action):
    """Run an action in a child, so that what it changes ends with it; raises OSError with its error."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            action()
        except OSError as error:
            code = error.errno or errno.EIO
        os.write(writer, b"%d" % code)
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    answer = os.read(reader, 16)
    os.close(reader)
    if answer != b"0":
        code = int(answer or errno.EIO)
        raise OSError(code, os.strerror(code))

