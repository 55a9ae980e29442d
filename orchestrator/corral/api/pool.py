"""`corral.Pool`: boxes that are started before they are asked for, for programs that start many."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from corral.app.pool import build_pool
from corral.app.request import BoxRequest
from corral.errors import ConfigError
from corral.sandbox.base import Sandbox
from corral.sandbox.spec import SandboxSpec

if TYPE_CHECKING:
    from corral.sandbox.pool import Pool as BoxPool


class Pool:
    """Boxes kept ready. Use it once, as `async with`, around each `Sandbox(..., pool=pool)`, `Agent(..., pool=pool)`.

    A box of the pool is handed out once, when it is alive and provably shows the workspace as it is at that moment; it
    is hardened and limited like any other. Where none fits or none is ready a box is started as without a pool. The
    pool refills itself. On leaving, the boxes that wait are removed; those in use live on until they are left.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str] | None = None,
        *,
        size: int = 4,
        max_age_s: float = 600.0,
        image: str | None = None,
        mode: str | None = None,
        force: bool = False,
    ) -> None:
        """Nothing is started yet.

        `workspace` may be left out where this program may mount (root, with the engine on this machine and the sandbox
        image): then the boxes are for any workspace. Elsewhere they are for this one. `size` boxes wait at most (64);
        one that has waited for `max_age_s` is replaced. `image`, `mode` and `force` are as for Sandbox, and must be
        the same there.
        """
        if max_age_s <= 0:
            raise ConfigError(f"boxes of a pool cannot be {max_age_s!r} seconds old at most", hint="more than 0")
        self._request = BoxRequest(
            workspace=Path(os.fsdecode(workspace or os.curdir)), image=image, mode=mode, force=force
        )
        self._is_for_one = workspace is not None
        self._size = size
        self._max_age_s = max_age_s
        self._pool: BoxPool | None = None

    async def __aenter__(self) -> Self:
        """Begin to fill it. Raises ConfigError."""
        if self._pool is not None:
            raise RuntimeError("a Pool is used once")
        self._pool = build_pool(self._request, is_for_one=self._is_for_one, size=self._size, max_age_s=self._max_age_s)
        await self._pool.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._open.close()

    @property
    def ready(self) -> int:
        """Boxes that wait now."""
        return self._open.ready

    @property
    def kind(self) -> str:
        """`late`: for any workspace, mounted when the box is handed out. `kept`: for the one workspace."""
        return self._open.kind

    @property
    def reason(self) -> str:
        """Why the boxes are not `late`, in words; "" when they are."""
        return self._open.reason

    @property
    def problem(self) -> str:
        """What went wrong last: why a box could not be made, or did not fit; "" when nothing did."""
        return self._open.problem

    async def wait_filled(self) -> None:
        """Wait until `size` boxes are ready. Raises SandboxError when one could not be made."""
        await self._open.wait_filled()

    def make(self, spec: SandboxSpec) -> Sandbox:
        """For `make_sandbox`: a box for this spec, from the pool where one fits."""
        return self._open.make(spec)

    @property
    def _open(self) -> BoxPool:
        if self._pool is None:
            raise RuntimeError("the pool has not been started: use `async with`")
        return self._pool
