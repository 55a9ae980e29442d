"""The process table as /proc shows it, and how a tree in it is ended without a fork.

The tree below a supervisor is complete, because a supervisor is a subreaper: an orphan never leaves it. Signals go
out by number only while everything untrusted is stopped, so that no number changes its owner in between.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SIGKILL = 9
SIGCONT = 18
SIGSTOP = 19
_MAX_ROUNDS = 100

Table = dict[int, tuple[int, str]]
"""pid -> (parent's pid, state letter)"""


def scan_processes() -> Table:
    """Every process of this pid namespace."""
    table: Table = {}
    for name in os.listdir("/proc"):
        if name[0] not in "123456789":
            continue
        try:
            fd = os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            text = os.read(fd, 512)
        except OSError:
            continue
        finally:
            os.close(fd)
        # The command's name is the process's own choice and may hold spaces and brackets: fields follow the last one.
        fields = text[text.rindex(b")") + 2 :].split(b" ", 2)
        table[int(name)] = (int(fields[1]), fields[0].decode("ascii"))
    return table


def find_descendants(table: Table, roots: set[int]) -> list[int]:
    """Processes below `roots`, the roots themselves not included, zombies included."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    open_pids = list(roots)
    while open_pids:
        below = [pid for pid in children.get(open_pids.pop(), ()) if pid not in roots]
        found += below
        open_pids += below
    return found


def is_alive(state: str) -> bool:
    return state not in "ZX"


def count_descendants(root: int) -> int:
    """Living processes below `root`."""
    table = scan_processes()
    return sum(is_alive(table[pid][1]) for pid in find_descendants(table, {root}))


def signal_process(pid: int, number: int) -> None:
    """Signal one process, gone ones ignored."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def signal_all(number: int) -> None:
    """Signal every process of this pid namespace but the first."""
    try:
        os.kill(-1, number)
    except ProcessLookupError:
        pass


def kill_stopped(select: "Callable[[Table], list[int]]") -> int:
    """SIGKILL every process `select` names, until it names no living one any more; returns how many.

    Leaves every other process stopped: the caller decides who goes on. A stopped fork bomb cannot race this, and a
    process that a neighbour's SIGCONT woke just then is found by the next round.
    """
    killed: set[int] = set()
    for _ in range(_MAX_ROUNDS):
        signal_all(SIGSTOP)
        table = scan_processes()
        fresh = [pid for pid in select(table) if pid not in killed and is_alive(table[pid][1])]
        if not fresh:
            break
        for pid in fresh:
            signal_process(pid, SIGKILL)
        killed.update(fresh)
    return len(killed)
