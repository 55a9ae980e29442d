"""The runs the doors can ask for: a command, an agent, a box for somebody else's loop.

Heavy rooms are imported where they are first needed: `corral exec` never loads a model client.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corral.agent.command import Command
from corral.agent.run import Ending
from corral.agent.watch import Watch
from corral.app.choice import build_timeouts, choose_model, choose_preset, load_policy
from corral.app.prepare import (
    MakeSandbox,
    Prepared,
    build_exporter,
    build_policy,
    build_run,
    describe_policy,
    prepare,
)
from corral.app.request import (
    AgentOutcome,
    AgentRequest,
    ExecOutcome,
    ExecRequest,
    SandboxOutcome,
    SandboxRequest,
)
from corral.config import load_settings
from corral.errors import ConfigError
from corral.sandbox.base import BoxInfo, Sink
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.lasting import make_lasting
from corral.schema.policy import Approver
from corral.schema.visible import visible

if TYPE_CHECKING:
    from corral.agent.session import AgentSession
    from corral.llm import ModelClient
    from corral.patch.export import Exporter
    from corral.policy import SessionPolicy


async def execute(
    request: ExecRequest,
    *,
    stdin: AsyncIterator[bytes] | None = None,
    stdout: Sink | None = None,
    stderr: Sink | None = None,
    on_box: Callable[[BoxInfo], None] | None = None,
    make_sandbox: MakeSandbox = DockerSandbox,
) -> ExecOutcome:
    """Run one command in a fresh box. Failures of box and engine are in the outcome. Raises RecordError, ConfigError
    for what cannot be used."""
    shown = visible(shlex.join(part.decode("utf-8", "surrogateescape") for part in request.argv), limit=500)
    with prepare(request, command=shown, make_sandbox=make_sandbox) as parts:
        command = Command(
            argv=request.argv,
            record=parts.record,
            env=request.env,
            timeout_s=request.timeout_s,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        run = build_run(parts, request, door="exec", goal=shown, on_box=on_box)
        outcome = await run.execute(command)
        parts.end(outcome.ending.summary or outcome.ending.reason.value)
        return ExecOutcome(
            parts.run_dir.run_id,
            parts.run_dir.path,
            outcome,
            command.result,
            parts.kept_patch(outcome.patch),
            parts.activity,
        )


async def run_agent(
    request: AgentRequest,
    *,
    client: ModelClient | None = None,
    approver: Approver | None = None,
    watch: Watch | None = None,
    on_box: Callable[[BoxInfo], None] | None = None,
    make_sandbox: MakeSandbox = make_lasting,
) -> AgentOutcome:
    """Let a model do a task in a fresh box. Failures of model, box and engine are in the outcome.

    Raises ConfigError for what cannot be used, RecordError.
    """
    from corral.llm import ReplayModel  # late: start-up time

    settings = load_settings()
    if not request.task.strip():
        raise ConfigError("the task is empty", hint='say what is to be done: corral run "make the tests pass"')
    preset, mode = choose_preset(request.preset or settings.preset, plan=request.plan)
    engine = load_policy(settings, preset)
    model = client or choose_model(settings, request.model)
    command = visible(request.task, limit=500)
    try:
        with prepare(request, command=command, watch=watch, make_sandbox=make_sandbox) as parts:
            policy = build_policy(parts, engine, preset, mode)
            session = _build_session(parts, request, model, policy, approver)
            facts = {"model": model.name, **describe_policy(policy)}
            run = build_run(parts, request, door="run", goal=request.task, on_box=on_box, **facts)
            outcome = await run.execute(session, spent=session.spent)
            parts.end(outcome.ending.reason.value)
            return AgentOutcome(
                parts.run_dir.run_id,
                parts.run_dir.path,
                outcome,
                parts.kept_patch(outcome.patch),
                model.name,
                parts.activity,
                diverged=model.diverged if isinstance(model, ReplayModel) else 0,
                watch_error=parts.watch_error,
            )
    finally:
        await model.close()


def _build_session(
    parts: Prepared, request: AgentRequest, model: ModelClient, policy: SessionPolicy, approver: Approver | None
) -> AgentSession:
    from corral.agent.session import AgentSession  # late: start-up time
    from corral.tools.outputs import OutputStore

    return AgentSession(
        task=request.task,
        client=model,
        decider=policy,
        record=parts.record,
        outputs=OutputStore(parts.run_dir.outputs),
        current_diff=build_exporter(parts, request).preview,
        mount_point=parts.spec.mount_point,
        limits=request.limits,
        mode=policy.session.mode,
        until=request.until,
        approver=approver,
        permission=policy.session.permission,
        timeouts=build_timeouts(parts.settings),
    )


@dataclass(frozen=True)
class OpenBox:
    """A box that runs, with everything a loop of somebody else's needs. Valid until the body it was given to ends."""

    parts: Prepared
    policy: SessionPolicy
    exporter: Exporter
    approver: Approver | None


async def use_box(
    request: SandboxRequest,
    body: Callable[[OpenBox], Awaitable[Ending]],
    *,
    approver: Approver | None = None,
    watch: Watch | None = None,
    make_sandbox: MakeSandbox = make_lasting,
) -> SandboxOutcome:
    """Run `body` with a fresh box. Failures of box and engine, and of the body, are in the outcome.

    Raises ConfigError for what cannot be used, RecordError.
    """
    settings = load_settings()
    preset, mode = choose_preset(request.preset or settings.preset, plan=False)
    engine = load_policy(settings, preset)
    goal = request.goal or "a box for a program"
    with prepare(request, command=visible(goal, limit=500), watch=watch, make_sandbox=make_sandbox) as parts:
        policy = build_policy(parts, engine, preset, mode)
        opened = OpenBox(parts, policy, build_exporter(parts, request), approver)
        run = build_run(parts, request, door="sandbox", goal=goal, on_box=None, **describe_policy(policy))
        outcome = await run.execute(lambda _: body(opened))
        parts.end(outcome.ending.reason.value)
        return SandboxOutcome(
            parts.run_dir.run_id,
            parts.run_dir.path,
            outcome,
            parts.kept_patch(outcome.patch),
            watch_error=parts.watch_error,
        )
