"""The box at rest: what a burst of work took goes back, and what waits is forked anew from a tidied first process.

A process shares with the first one what neither has written to since the fork; the longer both live, the less that is.
"""

import gc
import time

from corral_toolbox.kernel import syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from corral_toolbox.file_pool import FilePool
    from corral_toolbox.loop import Loop
    from corral_toolbox.pool import Pool
    from corral_toolbox.population import Population

_REST_S = 10.0
"""After so long without a request for a call or a file."""


class Rest:
    def __init__(self, loop: "Loop", pool: "Pool", files: "FilePool", population: "Population") -> None:
        self._loop = loop
        self._pool = pool
        self._files = files
        self._population = population
        self._used_at = time.monotonic()
        self._is_due = False

    def postpone(self) -> None:
        """Something was asked for."""
        self._used_at = time.monotonic()
        if not self._is_due:
            self._is_due = True
            self._loop.after(_REST_S, self._check)

    def _check(self) -> None:
        left_s = self._used_at + _REST_S - time.monotonic()
        if left_s <= 0 and self._population.is_frozen:
            left_s = _REST_S
        if left_s > 0:
            self._loop.after(left_s, self._check)
            return
        self._is_due = False
        self._settle()

    def _settle(self) -> None:
        from corral_toolbox import files  # noqa: F401  # late: it costs the start 10 ms, and is shared by all workers

        gc.unfreeze()
        gc.collect()
        syscall.trim_heap()
        gc.freeze()
        self._pool.renew()
        self._files.renew()
