"""The runs the doors can ask for: a command, an agent, a box for somebody else's loop.

Heavy rooms are imported where they are first needed: `corral exec` never loads a model client.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corral.agent.account import Account, Traffic, no_traffic
from corral.agent.command import Command
from corral.agent.run import Body, Ending
from corral.agent.watch import Watch
from corral.app.choice import build_timeouts, choose_model, choose_preset, load_policy
from corral.app.layer import keep_changes
from corral.app.place import place_workspace
from corral.app.prepare import (
    MakeSandbox,
    Prepared,
    build_exporter,
    build_policy,
    build_run,
    describe_policy,
    has_network,
    prepare,
)
from corral.app.redaction import build_redactor
from corral.app.request import (
    AgentOutcome,
    AgentRequest,
    BoxRequest,
    ExecOutcome,
    ExecRequest,
    SandboxOutcome,
    SandboxRequest,
)
from corral.config import Settings, load_settings
from corral.errors import ConfigError
from corral.redact import Redactor
from corral.sandbox.base import BoxInfo, ExecHandle, Sink, TerminalSize
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.lasting import make_lasting
from corral.schema.policy import Approver, PolicySession
from corral.schema.visible import visible

if TYPE_CHECKING:
    from corral.agent.session import AgentSession
    from corral.app.network import BoxNetwork, NetworkPlan
    from corral.llm import ModelClient
    from corral.patch.export import Exporter
    from corral.policy import PolicyEngine, SessionPolicy


async def execute(
    request: ExecRequest,
    *,
    stdin: AsyncIterator[bytes] | None = None,
    stdout: Sink | None = None,
    stderr: Sink | None = None,
    terminal: TerminalSize | None = None,
    handle: ExecHandle | None = None,
    watch: Watch | None = None,
    on_box: Callable[[BoxInfo], None] | None = None,
    on_wait: Callable[[str], None] = lambda text: None,
    on_secrets: Callable[[Redactor], None] = lambda redactor: None,
    make_sandbox: MakeSandbox = DockerSandbox,
) -> ExecOutcome:
    """Run one command in a fresh box. Failures of box and engine are in the outcome.

    With `terminal` it runs in one of its own. The sinks get the bytes as they are; `on_secrets` is given what masks
    them for a screen, before the first comes. `on_wait` is told what takes a while before there is a run. Raises
    ConfigError for what cannot be used, RecordError; SandboxError when the workspace cannot be taken out of an image.
    """
    settings = load_settings()
    plan = _plan_network(settings, request)
    redactor = build_redactor(settings, secrets=plan.secrets if plan else (), env=request.env)
    on_secrets(redactor)
    line = shlex.join(part.decode("utf-8", "surrogateescape") for part in request.argv or [b"shell"])
    shown = visible(redactor.text(line), limit=500)
    engine = load_policy(settings, choose_preset(settings.preset, plan=False)[0]) if plan else None
    request = await place_workspace(request, settings, on_take=on_wait)
    with prepare(request, command=shown, watch=watch, make_sandbox=make_sandbox, redactor=redactor) as parts:
        command = Command(
            argv=request.argv,
            record=parts.record,
            env=request.env,
            timeout_s=request.timeout_s,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            terminal=terminal,
            handle=handle,
        )
        network = _make_network(plan, parts, engine)
        run = build_run(parts, request, door="exec", goal=shown, on_box=on_box, traffic=_count(network))
        outcome = await run.execute(_connect(network, command))
        parts.end(outcome.ending.summary or outcome.ending.reason.value)
        kept = None
        if request.keep is not None:
            kept = await asyncio.to_thread(keep_changes, parts, outcome, request.keep)
        return ExecOutcome(
            parts.run_dir.run_id,
            parts.run_dir.path,
            outcome,
            command.result,
            parts.kept_patch(outcome.patch),
            parts.activity,
            network.report if network else None,
            kept,
            redactor,
        )


async def run_agent(
    request: AgentRequest,
    *,
    client: ModelClient | None = None,
    approver: Approver | None = None,
    watch: Watch | None = None,
    on_box: Callable[[BoxInfo], None] | None = None,
    on_wait: Callable[[str], None] = lambda text: None,
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
    plan = _plan_network(settings, request, phase="agent")
    model = client or choose_model(settings, request.model)
    redactor = build_redactor(settings, secrets=plan.secrets if plan else ())
    command = visible(redactor.text(request.task), limit=500)
    try:
        request = await place_workspace(request, settings, on_take=on_wait)
        with prepare(request, command=command, watch=watch, make_sandbox=make_sandbox, redactor=redactor) as parts:
            policy = build_policy(parts, engine, preset, mode)
            network = _make_network(plan, parts, engine, policy)
            session = _build_session(parts, request, model, policy, approver, network)
            facts = {"model": model.name, **describe_policy(policy)}
            run = build_run(
                parts, request, door="run", goal=request.task, on_box=on_box, traffic=_count(network), **facts
            )
            body = _set_up(parts, request, session, network)
            # A set-up that fails shall cost no tokens.
            ahead = session.ask_ahead(parts.sandbox) if request.setup is None else None
            outcome = await run.execute(_connect(network, body), spent=session.spent, ahead=ahead)
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
                network=network.report if network else None,
                redactor=redactor,
            )
    finally:
        await model.close()


def _set_up(parts: Prepared, request: AgentRequest, session: AgentSession, network: BoxNetwork | None) -> Body:
    """The session, with its set-up before it, which has a network of its own."""
    if request.setup is None:
        return session
    from corral.agent.setup import Setup  # late: start-up time

    async def end_phase() -> None:
        if network is not None:
            network.end_setup()

    return Setup(request.setup, parts.record, end_phase, session)


def _plan_network(settings: Settings, request: BoxRequest, *, phase: str = "") -> NetworkPlan | None:
    """None when no network is asked for: then nothing of it is even loaded. Raises ConfigError."""
    if not has_network(request, settings):
        return None
    from corral.app.network import plan_network  # late: start-up time

    setup = request.setup_network if isinstance(request, AgentRequest) else ()
    return plan_network(settings, request.network, phase=phase, setup=setup)


def _make_network(
    plan: NetworkPlan | None, parts: Prepared, engine: PolicyEngine | None, policy: SessionPolicy | None = None
) -> BoxNetwork | None:
    if plan is None or engine is None:
        return None
    from corral.app.network import BoxNetwork  # late: start-up time

    session = policy.session if policy else PolicySession(id=parts.run_dir.run_id)
    return BoxNetwork(plan, engine, session, parts.record)


def _connect(network: BoxNetwork | None, body: Body) -> Body:
    if network is None:
        return body
    from corral.app.network import surround  # late: start-up time

    return surround(network, body)


def _count(network: BoxNetwork | None) -> Traffic:
    return network.count_bytes if network else no_traffic


def _build_session(
    parts: Prepared,
    request: AgentRequest,
    model: ModelClient,
    policy: SessionPolicy,
    approver: Approver | None,
    network: BoxNetwork | None,
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
        hosts=network.agent_hosts if network else (),
        redactor=parts.redactor,
    )


@dataclass(frozen=True)
class OpenBox:
    """A box that runs, with everything a loop of somebody else's needs. Valid until the body it was given to ends."""

    parts: Prepared
    policy: SessionPolicy
    exporter: Exporter
    approver: Approver | None
    account: Account
    network: BoxNetwork | None = None


async def use_box(
    request: SandboxRequest,
    body: Callable[[OpenBox], Awaitable[Ending]],
    *,
    approver: Approver | None = None,
    watch: Watch | None = None,
    env: Mapping[str, str] | None = None,
    make_sandbox: MakeSandbox = make_lasting,
) -> SandboxOutcome:
    """Run `body` with a fresh box. Failures of box and engine, and of the body, are in the outcome. `env` is what its
    commands are given, for the secrets in it.

    Raises ConfigError for what cannot be used, RecordError.
    """
    settings = load_settings()
    preset, mode = choose_preset(request.preset or settings.preset, plan=False)
    engine = load_policy(settings, preset)
    plan = _plan_network(settings, request)
    goal = request.goal or "a box for a program"
    redactor = build_redactor(settings, secrets=plan.secrets if plan else (), env=env)
    command = visible(redactor.text(goal), limit=500)
    request = await place_workspace(request, settings)
    with prepare(request, command=command, watch=watch, make_sandbox=make_sandbox, redactor=redactor) as parts:
        policy = build_policy(parts, engine, preset, mode)
        network = _make_network(plan, parts, engine, policy)
        facts = describe_policy(policy)
        run = build_run(parts, request, door="sandbox", goal=goal, on_box=None, traffic=_count(network), **facts)
        opened = OpenBox(parts, policy, build_exporter(parts, request), approver, run.account, network)
        outcome = await run.execute(_connect(network, lambda _: body(opened)))
        parts.end(outcome.ending.reason.value)
        return SandboxOutcome(
            parts.run_dir.run_id,
            parts.run_dir.path,
            outcome,
            parts.kept_patch(outcome.patch),
            watch_error=parts.watch_error,
        )
