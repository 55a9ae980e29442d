"""`corral run`: an agent does a task in a box; its changes come out as a patch."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from corral.cli.exec import check_timeout, save_patch
from corral.cli.network import parse_network, split_names
from corral.cli.output import mask_output, note, print_json
from corral.errors import ConfigError

if TYPE_CHECKING:
    from corral.app import AgentOutcome, AgentRequest
    from corral.schema.events import Event

Number = TypeVar("Number", int, int | None, float | None)


def run(
    task: str,
    *,
    directory: Annotated[Path, Parameter(name=["--directory", "-C"])] = Path(),
    until: str | None = None,
    model: str | None = None,
    preset: str | None = None,
    plan: Annotated[bool, Parameter(negative="")] = False,
    steps: int = 30,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    max_time: float | None = None,
    network: Annotated[list[str] | None, Parameter(name="--network", negative="")] = None,
    allow: Annotated[list[str] | None, Parameter(name="--allow", negative="")] = None,
    secret: Annotated[list[str] | None, Parameter(name="--secret", negative="")] = None,
    forward: Annotated[list[str] | None, Parameter(name="--forward", negative="")] = None,
    setup: str | None = None,
    setup_network: Annotated[list[str] | None, Parameter(name="--setup-network", negative="")] = None,
    patch: Annotated[Path | None, Parameter(name="--patch")] = None,
    image: str | None = None,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    mode: str | None = None,
    include_ignored: Annotated[bool, Parameter(negative="")] = False,
    force: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Let an agent do a task: corral run "make the tests pass"

    It works in a fresh box on a copy-on-write view of the workspace; every call it makes is judged by policy and
    recorded. Steps are shown as they happen; piped or with --json, the record's events come as JSON Lines.

    Parameters
    ----------
    task
        What is to be done, in your words.
    directory
        The workspace; the box sees it as /workspace. image:PATH takes a directory of the image, at its own place.
    until
        A command that must exit with 0 in the box before the run counts as done.
    model
        Name of the model at its endpoint, scripted:FILE, or replay:RUN. Default: CORRAL_MODEL or the settings file.
    preset
        What it may do without being asked about: auto, never, plan, on-request, auto-edit, yolo.
    plan
        Only read, and end with a plan.
    steps
        Model calls it may make.
    max_tokens
        Tokens it may use, in all.
    max_cost
        US dollars it may cost.
    max_time
        Seconds it may take.
    network
        Shipped lists of hosts it may reach: none, python, node, rust, go, debian, git.
    allow
        A host it may reach: HOST (ports 80 and 443), HOST:PORT, *.HOST:PORT. Private addresses never.
    secret
        Name of a secret in the settings that is put into requests to its own hosts. The box sees a placeholder.
    forward
        Bring a port of the box to this machine's loopback: PORT, or PORT:PORT_HERE.
    setup
        A command line that runs before the agent, such as the installation of what the tests need.
    setup_network
        Shipped lists of hosts that only the set-up may reach.
    patch
        Also write the patch to this file.
    image
        Image of the box instead of the sandbox image: any for Linux that the engine has.
    from_
        Start from the set-up layer of this name (corral exec --keep makes one).
    mode
        How the workspace gets in: auto, overlay, copy.
    include_ignored
        Export what the workspace's ignore rules cover, too.
    force
        Allow / or the home directory as the workspace.
    json
        JSON Lines on stdout instead of the live view.
    """
    from corral import app  # late: start-up time
    from corral.agent.budget import Limits

    request = app.AgentRequest(
        workspace=directory,
        image=image,
        layer=from_,
        mode=mode,
        include_ignored=include_ignored,
        force=force,
        network=parse_network(network, allow, secret, forward),
        setup=check_setup(setup, setup_network),
        setup_network=split_names(setup_network or ()),
        task=task,
        until=until,
        model=model,
        preset=preset,
        plan=plan,
        limits=Limits(
            steps=check_positive("--steps", steps),
            tokens=check_positive("--max-tokens", max_tokens),
            cost_usd=check_positive("--max-cost", max_cost),
            wall_s=check_timeout(max_time),
        ),
    )
    as_json = json or not sys.stdout.isatty()
    outcome = asyncio.run(_run(request, as_json=as_json))
    mask_output(outcome.redactor)
    if patch is not None:
        save_patch(outcome.patch_file, patch)
    show_result(outcome, as_json=as_json)
    return outcome.exit_code


async def _run(request: AgentRequest, *, as_json: bool) -> AgentOutcome:
    from corral import app  # late: start-up time
    from corral.cli.interrupt import cancel_on_signals
    from corral.cli.live import LiveView, print_event

    view, gone = LiveView(), asyncio.Event()

    def feed(event: Event) -> None:
        try:
            print_event(event)
        except BrokenPipeError:
            gone.set()  # nobody reads what the run says: it ends as by Ctrl-C
            raise

    run = app.run_agent(
        request,
        watch=feed if as_json else view.event,
        on_box=None if as_json else view.box,
        on_wait=(lambda text: None) if as_json else note,
    )
    return await cancel_on_signals(run, gone=gone)


def show_result(outcome: AgentOutcome, *, as_json: bool) -> None:
    """The end: for people on stderr, for programs one last line of JSON."""
    from corral.app import explain  # late: start-up time
    from corral.cli.activity import SHOWN_JSON, activity_json, show_activity
    from corral.cli.summary import show_end

    done = outcome.outcome
    if as_json:
        print_json(
            {
                "kind": "result",
                "run": outcome.run_id,
                "stop_reason": done.ending.reason.value,
                "exit_code": outcome.exit_code,
                "summary": done.ending.summary,
                "steps": done.ending.steps,
                "cost_usd": done.ending.cost_usd,
                "error": explain(done.error) if done.error else None,
                "limits_touched": list(done.limits_touched),
                "resources": done.resources.model_dump(),
                "activity": activity_json(outcome.activity, most=SHOWN_JSON),
                "changes": done.patch.model_dump(mode="json") if done.patch else None,
                "network": asdict(outcome.network) if outcome.network else None,
                "patch": str(outcome.patch_file) if outcome.patch_file else None,
                "run_dir": str(outcome.run_dir),
            }
        )
    show_end(done, outcome.run_id, outcome.patch_file, network=outcome.network)
    show_activity(outcome.activity)


def check_setup(setup: str | None, network: list[str] | None) -> str | None:
    """A command line, if any. Raises ConfigError."""
    if setup is not None and not setup.strip():
        raise ConfigError("--setup is empty", hint='a command line, such as --setup "pip install -e ."')
    if setup is None and network:
        raise ConfigError("--setup-network without --setup", hint="what the agent may reach is --network")
    return setup


def check_positive(flag: str, value: Number) -> Number:
    """A usable limit. Raises ConfigError."""
    if value is not None and value <= 0:
        raise ConfigError(f"{flag} {value!r} is not above 0", hint="leave it out for the default")
    return value
