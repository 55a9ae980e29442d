"""The runs the doors can ask for: a command, an agent.

Heavy rooms are imported where they are first needed: `corral exec` never loads a model client.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from corral.agent.command import Command
from corral.agent.watch import Watch
from corral.app.choice import build_timeouts, choose_model, choose_preset
from corral.app.prepare import MakeSandbox, build_exporter, build_run, prepare
from corral.app.request import AgentOutcome, AgentRequest, ExecOutcome, ExecRequest
from corral.config import load_settings
from corral.errors import ConfigError
from corral.sandbox.base import BoxInfo, Sink
from corral.sandbox.docker import DockerSandbox
from corral.schema.policy import Approver, PolicySession
from corral.schema.visible import visible

if TYPE_CHECKING:
    from corral.llm import ModelClient


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
            parts.run_dir.run_id, parts.run_dir.path, outcome, command.result, parts.kept_patch(outcome.patch)
        )


async def run_agent(
    request: AgentRequest,
    *,
    client: ModelClient | None = None,
    approver: Approver | None = None,
    watch: Watch | None = None,
    on_box: Callable[[BoxInfo], None] | None = None,
    make_sandbox: MakeSandbox = DockerSandbox,
) -> AgentOutcome:
    """Let a model do a task in a fresh box. Failures of model, box and engine are in the outcome.

    Raises ConfigError for what cannot be used, RecordError.
    """
    from corral.agent.session import AgentSession  # late: start-up time
    from corral.llm import ReplayModel
    from corral.policy import PolicyEngine, SessionPolicy
    from corral.tools.outputs import OutputStore

    settings = load_settings()
    if not request.task.strip():
        raise ConfigError("the task is empty", hint='say what is to be done: corral run "make the tests pass"')
    preset, mode = choose_preset(request.preset or settings.preset, plan=request.plan)
    engine = PolicyEngine.load_preset(preset)
    model = client or choose_model(settings, request.model)
    command = visible(request.task, limit=500)
    with prepare(request, command=command, watch=watch, make_sandbox=make_sandbox) as parts:
        run_id = parts.run_dir.run_id
        policy = SessionPolicy(
            engine, PolicySession(id=run_id, preset=preset, mode=mode), mount_point=parts.spec.mount_point
        )
        session = AgentSession(
            task=request.task,
            client=model,
            decider=policy,
            record=parts.record,
            outputs=OutputStore(parts.run_dir.outputs),
            current_diff=build_exporter(parts, request).preview,
            mount_point=parts.spec.mount_point,
            limits=request.limits,
            mode=mode,
            until=request.until,
            approver=approver,
            timeouts=build_timeouts(settings),
        )
        run = build_run(
            parts,
            request,
            door="run",
            goal=request.task,
            on_box=on_box,
            model=model.name,
            mode=mode.value,
            preset=preset.value,
            policy=engine.version,
        )
        try:
            outcome = await run.execute(session, spent=session.spent)
        finally:
            await model.close()
        parts.end(outcome.ending.reason.value)
        return AgentOutcome(
            run_id,
            parts.run_dir.path,
            outcome,
            parts.kept_patch(outcome.patch),
            model.name,
            diverged=model.diverged if isinstance(model, ReplayModel) else 0,
            watch_error=parts.watch_error,
        )
