"""Everything untrusted in the box at once: stop it, let it go on, end it, reap what it leaves.

Own processes are supervisors, the children that wait in spares, and file workers; whatever else there is was started
by a command, or came from outside, and is untrusted.
"""

import os
import time

from corral_toolbox.kernel import process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from corral_toolbox.file_pool import FilePool
    from corral_toolbox.loop import Loop
    from corral_toolbox.pool import Pool

_FREEZE_S = 1.0
_KILL_S = 2.0
_POLL_S = 0.002
_LATE_S = (0.01, 0.1, 1.0)


class Population:
    def __init__(self, loop: "Loop", pool: "Pool", files: "FilePool", *, has_trees: bool = True) -> None:
        self._loop = loop
        self._has_trees = has_trees
        self._pool = pool
        self._files = files
        self.is_frozen = False

    def find_own(self, table: process.Table) -> set[int]:
        return (self._pool.pids | self._files.pids) & set(table)

    def find_untrusted(self, table: process.Table) -> list[int]:
        own = self.find_own(table) | {os.getpid()}
        return [pid for pid, (_, state) in table.items() if pid not in own and process.is_alive(state)]

    def freeze(self, report: "Callable[[int, int], None]") -> None:
        """Stop every untrusted process until `thaw`; reports how many stopped, and how many did not in time."""
        self.is_frozen = True
        deadline = time.monotonic() + _FREEZE_S
        is_quiet = False

        def step() -> None:
            nonlocal is_quiet
            process.signal_all(process.SIGSTOP)
            self._resume()
            table = process.scan_processes()
            untrusted = self.find_untrusted(table)
            running = sum(table[pid][1] not in "Tt" for pid in untrusted)
            # Quiet twice: what was being forked during the first look is seen in the second.
            was_quiet, is_quiet = is_quiet, not running and self._pool.is_settled
            if not (was_quiet and is_quiet) and time.monotonic() < deadline:
                self._loop.after(_POLL_S, step)
            else:
                report(len(untrusted) - running, running)

        step()

    def thaw(self) -> None:
        self.is_frozen = False
        self._resume()

    def kill_tree(self, supervisor: int) -> None:
        """End everything below a supervisor; neighbours only pause.

        Where orphans leave their tree they go as well, whoever they were: of a call that is ended nothing shall stay.
        """

        def select(table: process.Table) -> list[int]:
            below = process.find_descendants(table, {supervisor})
            return below if self._has_trees else [*below, *self._find_orphans(table)]

        process.kill_stopped(select)
        self._resume()

    def kill_all(self, report: "Callable[[bool], None]") -> None:
        """End every untrusted process; reports whether all have gone, at the latest after two seconds."""
        process.kill_stopped(self.find_untrusted)
        self._resume()
        deadline = time.monotonic() + _KILL_S

        def step() -> None:
            is_empty = self._pool.is_settled and not self.find_untrusted(process.scan_processes())
            if is_empty or time.monotonic() > deadline:
                report(is_empty)
            else:
                self._loop.after(_POLL_S, step)

        step()

    def reap(self) -> None:
        """Take the exit status of every ended child of this process, whoever that was."""
        is_orphaned = False
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if not self._files.reaped(pid):
                is_orphaned |= self._pool.reaped(pid)
        if is_orphaned:
            # Killed from outside, a supervisor hands its call's processes to this one: they go with their call.
            process.kill_stopped(self._find_orphans)
            self._resume()

    def _find_orphans(self, table: process.Table) -> list[int]:
        own = self.find_own(table)
        orphans = {pid for pid, (parent, _) in table.items() if parent == os.getpid() and pid not in own}
        return [*orphans, *process.find_descendants(table, orphans)]

    def _resume(self) -> None:
        """After a stop of everything: let go on what may."""
        if self.is_frozen:
            for pid in self._pool.pids | self._files.pids:
                process.signal_process(pid, process.SIGCONT)
            return
        process.signal_all(process.SIGCONT)
        for delay_s in _LATE_S:
            self._loop.after(delay_s, self._resume_late)

    def _resume_late(self) -> None:
        # A process born out of a fork that was under way during both signals has the stop, not the SIGCONT: the
        # kernel hands only signals on that are not ignored by default.
        if not self.is_frozen:
            process.signal_all(process.SIGCONT)
