"""`corral.Agent`: what `corral run` does, for programs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from corral import app
from corral.agent.budget import Limits
from corral.agent.watch import Watch
from corral.api.network import build_network
from corral.api.pool import Pool
from corral.app import AgentOutcome, AgentRequest, MakeSandbox
from corral.errors import CorralError
from corral.sandbox.lasting import make_lasting
from corral.schema.patch import Patch
from corral.schema.policy import Approver
from corral.schema.resources import RunResources

if TYPE_CHECKING:
    from corral.llm import ModelClient


class AgentResult:
    """An agent's run that is over. It is there for every way a run can end; `error` says when something broke."""

    def __init__(self, done: AgentOutcome) -> None:
        self._done = done

    @property
    def run_id(self) -> str:
        """The run's id, as `corral log`, `corral runs` and `corral apply` take it."""
        return self._done.run_id

    @property
    def finished(self) -> bool:
        """Whether the model called finish, the completion command held, and nothing is open."""
        return self.stop_reason == "finished"

    @property
    def stop_reason(self) -> str:
        """finished, finished_incomplete, not_verified, step_limit, token_limit, cost_limit, time_limit, stuck,
        failures, parse_failures, approval_denied, cancelled, model_unavailable, box_lost or error."""
        return self._done.outcome.ending.reason.value

    @property
    def summary(self) -> str:
        """The model's last words, or what ended the run. Words of a model: make them visible before you show them."""
        return self._done.outcome.ending.summary

    @property
    def exit_code(self) -> int:
        """What `corral run` would exit with."""
        return self._done.exit_code

    @property
    def error(self) -> CorralError | None:
        """What broke: the endpoint, the box, the engine; None for an end in order, limits included."""
        return self._done.outcome.error

    @property
    def steps(self) -> int:
        """Model calls made."""
        return self._done.outcome.ending.spent.steps

    @property
    def tokens(self) -> tuple[int, int]:
        """Input and output tokens used, as the endpoint reports them or else estimated."""
        tokens = self._done.outcome.ending.spent.tokens
        return tokens.input, tokens.output

    @property
    def cost_usd(self) -> float | None:
        """US dollars; None when the price of the model is not known."""
        return self._done.outcome.ending.spent.cost_usd

    @property
    def resources(self) -> RunResources:
        """Time, processor seconds, memory, processes, bytes written and passed through the network."""
        return self._done.outcome.resources

    @property
    def patch(self) -> Patch | None:
        """What changed; None when nothing did or nothing could be read."""
        return self._done.outcome.patch

    @property
    def patch_file(self) -> Path | None:
        """Where the patch is kept; None when nothing changed."""
        return self._done.patch_file

    @property
    def record_path(self) -> Path:
        """The record of the run."""
        return self._done.run_dir / "record.jsonl"

    @property
    def diverged(self) -> int:
        """For a model `replay:RUN`: how many requests were not what the recorded model saw."""
        return self._done.diverged

    def __repr__(self) -> str:
        return f"AgentResult(run_id={self.run_id!r}, stop_reason={self.stop_reason!r}, steps={self.steps})"


class Agent:
    """An agent with one task, in a fresh box on a copy-on-write view of the workspace. `run` may be called once."""

    def __init__(
        self,
        task: str,
        workspace: str | os.PathLike[str] = ".",
        *,
        model: str | ModelClient | None = None,
        until: str | None = None,
        preset: str | None = None,
        plan: bool = False,
        limits: Limits | None = None,
        image: str | None = None,
        layer: str | None = None,
        mode: str | None = None,
        include_ignored: bool = False,
        force: bool = False,
        network: str | Sequence[str] | None = None,
        allow: Sequence[str] = (),
        secrets: Sequence[str] = (),
        setup: str | None = None,
        setup_network: Sequence[str] = (),
        approver: Approver | None = None,
        on_event: Watch | None = None,
        pool: Pool | None = None,
        make_sandbox: MakeSandbox = make_lasting,
    ) -> None:
        """Nothing is started yet.

        `workspace` and `layer` are as for Sandbox.
        `model` is a name at the configured endpoint, `scripted:FILE`, `replay:RUN`, or a client of your own that holds
        to ModelClient; default is CORRAL_MODEL or the settings file. `until` is a command that must exit with 0 in the
        box before the run counts as done. `preset`, `image` and `mode` default to the user's settings; `plan` only
        reads and ends with a plan. `limits` are steps, tokens, US dollars and seconds. `network`, `allow` and `secrets`
        are as for Sandbox. `setup` is a command line that runs before the agent, and may reach what the lists
        `setup_network` name. `approver` is asked where policy says so; without one the answer is no.
        `on_event` is called with each event of the record after it is written;
        an error it raises is raised by `run` at the end. `pool` gives a box that is ready, where one fits.
        `make_sandbox` is for tests.
        """
        self._model = model
        self._request = AgentRequest(
            workspace=Path(os.fsdecode(workspace)),
            image=image,
            layer=layer,
            mode=mode,
            include_ignored=include_ignored,
            force=force,
            network=build_network(network, allow, secrets, ()),
            setup=setup,
            setup_network=tuple(setup_network),
            task=task,
            until=until,
            model=model if isinstance(model, str) else None,
            preset=preset,
            plan=plan,
            limits=limits or Limits(),
        )
        self._approver = approver
        self._watch = on_event
        self._make_sandbox = make_sandbox if pool is None else pool.make
        self.result: AgentResult | None = None
        """The run that is over, also when `run` was cancelled."""

    async def run(self) -> AgentResult:
        """Do the task. Failures of model, box and engine are in the result.

        Raises ConfigError for what cannot be used (no model, no such preset, no such workspace) and RecordError. When
        the calling task is cancelled, the run ends in order, its changes are kept, and the cancellation goes on.
        """
        if self.result is not None:
            raise RuntimeError("an Agent runs once")
        client = None if isinstance(self._model, str) else self._model
        # A task of its own: a cancel is part of the run's outcome there, and goes on to the caller here.
        task = asyncio.ensure_future(
            app.run_agent(
                self._request,
                client=client,
                approver=self._approver,
                watch=self._watch,
                make_sandbox=self._make_sandbox,
            )
        )
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
                task.cancel()
        done = task.result()
        self.result = AgentResult(done)
        if cancelled is not None:
            raise cancelled
        if done.watch_error is not None:
            raise done.watch_error
        return self.result
