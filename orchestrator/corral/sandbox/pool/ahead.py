"""A box that is started before it has a run: warm() goes as far as nothing in it has seen anything of the workspace,
adopt() names the run, start() does the rest and proves what the box sees.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from corral.errors import BoxLost, SandboxError, ToolError
from corral.sandbox.base import BoxInfo
from corral.sandbox.container import fit_limits
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.engine import Engine, run_in_thread
from corral.sandbox.foreign import FoundImage
from corral.sandbox.janitor import start_janitor
from corral.sandbox.spec import SandboxSpec
from corral.sandbox.workspace import FoundSecrets, PreparedWorkspace, SearchMemo, find_secrets
from corral_protocol.message import HelloReply

CHECK_LIMIT_S = 10.0
FACT = "pool"
"""The fact of a box that came from a pool: which kind."""


class Unfit(SandboxError):
    """This box cannot be what is asked for; a new one can. Never leaves this room."""

    code = "pool_unfit"


class AheadSandbox(DockerSandbox):
    """The part that both kinds share."""

    kind = ""

    def __init__(self, spec: SandboxSpec, *, engine: Engine, memo: SearchMemo) -> None:
        super().__init__(spec, engine=engine)
        self.warmed_at = 0.0
        self._memo = memo
        self._image: FoundImage | None = None
        self._hello: HelloReply | None = None

    async def warm(self) -> None:
        """Start it. Raises SandboxError, ConfigError, Unfit."""
        self._janitor = start_janitor()
        self._janitor.hold(self._spec.run_id)
        try:
            limits = fit_limits(self._spec.limits, *await self._engine.count_resources())
            self._spec = replace(self._spec, limits=limits)
            self._image = await self._warm()
            # Also the proof that the toolbox runs and listens.
            await self._check()
        except BaseException:
            await self.dispose()
            raise
        self.warmed_at = time.monotonic()

    def adopt(self, spec: SandboxSpec) -> None:
        """Give it the run that start() is for. Once."""
        if self._janitor is not None:
            self._janitor.forget(self._spec.run_id)
        self._janitor = None
        self._spec = spec
        if self._box is not None:
            self._box.observe = spec.observe

    async def is_well(self) -> bool:
        """Asks the toolbox, which renews its lease."""
        try:
            await self._check()
        except (SandboxError, ToolError):
            return False
        return True

    @property
    def is_there(self) -> bool:
        """As far as is known without asking."""
        return self._box is not None and self._box.channel is not None and not self._box.channel.is_ending

    @property
    def ended(self) -> asyncio.Future[SandboxError]:
        return self._channel.ended

    def cut_off(self) -> None:
        """End the toolbox, and with it everything in the box, without waiting for its removal."""
        if self._box is not None and self._box.channel is not None:
            self._box.channel.end(BoxLost("the box has been disposed of"))

    async def _check(self) -> None:
        assert self._box is not None
        await self._box.ask_ungreeted(CHECK_LIMIT_S)

    async def _warm(self) -> FoundImage:
        raise NotImplementedError

    async def _verify(self, prepared: PreparedWorkspace, hello: HelloReply) -> None:
        mismatch = await run_in_thread(lambda: prepared.verify(hello), name="corral-workspace")
        if mismatch is not None:
            raise Unfit(mismatch)

    def _find_secrets(self) -> FoundSecrets:
        return find_secrets(self._spec, self._memo)

    def _describe(self, image: FoundImage, hello: HelloReply, start_s: float) -> BoxInfo:
        info = super()._describe(image, hello, start_s)
        return replace(info, facts={**info.facts, FACT: self.kind})
