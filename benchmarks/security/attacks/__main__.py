"""python3 -m attacks ID...: tries each in a process of its own and says how it ended, one JSON object a line."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from . import ATTACKS
from .attack import BREACH, HELD, PLANTED, UNKNOWN, Attack, Unable

_FILTERED = (signal.SIGSYS,)
_LIMITED = (signal.SIGKILL, signal.SIGXFSZ, signal.SIGSYS)


def judge(attack: Attack) -> tuple[str, str]:
    """Verdict and reason, in the process that tries."""
    try:
        found = attack.run()
    except Unable as error:
        return UNKNOWN, str(error)
    except OSError as error:
        return HELD, error.strerror or str(error)
    except MemoryError:
        return HELD, "out of memory"
    except Exception as error:  # a mistake of the attack's own must not look like a refusal
        return UNKNOWN, f"{type(error).__name__}: {error}"
    if found == PLANTED:
        return PLANTED, ""
    return (BREACH, found) if found else (HELD, "")


def attempt(attack: Attack) -> tuple[str, str]:
    """One attack in a child, whatever becomes of that child."""
    reader, writer = os.pipe()
    os.set_inheritable(reader, False)
    os.environ["ATTACK_FDS"] = f"{reader},{writer}"
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            verdict = judge(attack)
            os.write(writer, json.dumps(verdict).encode()[:4000])
        finally:
            os._exit(0)
    os.close(writer)
    end = time.monotonic() + attack.timeout_s
    told, status = b"", None
    while status is None and time.monotonic() < end:
        ready, _, _ = select.select([reader], [], [], 0.02)
        told += os.read(reader, 4096) if ready else b""
        done, found = os.waitpid(pid, os.WNOHANG)
        status = found if done else None
        if ready and not told and status is None:
            time.sleep(0.005)
    os.set_blocking(reader, False)
    try:
        told += os.read(reader, 4096)
    except BlockingIOError:
        pass
    os.close(reader)
    _end(pid, reap=status is None)
    return _conclude(attack, told, status)


def _end(pid: int, *, reap: bool) -> None:
    """What the attack has left in its group, and itself."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass
    if reap:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except OSError:
            pass


def _conclude(attack: Attack, told: bytes, status: int | None) -> tuple[str, str]:
    if told:
        try:
            verdict, reason = json.loads(told)
        except ValueError:
            return UNKNOWN, "its answer was cut off"
        return str(verdict), str(reason)
    if status is None:
        return UNKNOWN, f"no end after {attack.timeout_s:g} s"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in (_LIMITED if attack.can_kill else _FILTERED):
            return HELD, f"ended by {signal.Signals(number).name}"
        return UNKNOWN, f"ended by {signal.Signals(number).name}"
    return UNKNOWN, f"said nothing, exit code {os.waitstatus_to_exitcode(status)}"


def main() -> None:
    for name in sys.argv[1:]:
        verdict, reason = attempt(ATTACKS[name])
        print(json.dumps({"id": name, "verdict": verdict, "reason": reason[:300]}), flush=True)


if __name__ == "__main__":
    main()
