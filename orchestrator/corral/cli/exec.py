"""`corral exec`: a command in a fresh box on a copy-on-write view of the workspace."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from cyclopts import Parameter

from corral.cli.network import Forwards, parse_network
from corral.cli.output import has_colour, mask_output, note, print_json
from corral.errors import ConfigError
from corral.schema.visible import visible

if TYPE_CHECKING:
    from corral.app import ExecOutcome, ExecRequest
    from corral.redact import Redactor, Stream
    from corral.sandbox.base import BoxInfo
    from corral_protocol.message import Capture

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def exec_command(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    directory: Annotated[Path, Parameter(name=["--directory", "-C"])] = Path(),
    env: Annotated[list[str] | None, Parameter(name=["--env", "-e"], negative="")] = None,
    image: str | None = None,
    mode: str | None = None,
    timeout: Annotated[float | None, Parameter(name="--timeout")] = None,
    network: Annotated[list[str] | None, Parameter(name="--network", negative="")] = None,
    allow: Annotated[list[str] | None, Parameter(name="--allow", negative="")] = None,
    secret: Annotated[list[str] | None, Parameter(name="--secret", negative="")] = None,
    forward: Annotated[list[str] | None, Parameter(name="--forward", negative="")] = None,
    patch: Annotated[Path | None, Parameter(name="--patch")] = None,
    keep: str | None = None,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    include_ignored: Annotated[bool, Parameter(negative="")] = False,
    force: Annotated[bool, Parameter(negative="")] = False,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    terminal: Annotated[bool, Parameter(name=["--terminal", "-t"], negative="")] = False,
) -> int:
    """Run a command in a fresh box: corral exec [options] -- CMD ...

    Its output is passed on as it comes, its exit code is corral's. Then a summary on stderr says what it changed. The
    original is never written: the changes are kept as a patch for `corral apply`.

    Parameters
    ----------
    directory
        The workspace; the box sees it as /workspace. image:PATH takes a directory of the image, at its own place.
    env
        NAME=VALUE for the command, or NAME to pass on yours. The box sees it: never pass a secret.
    image
        Image of the box instead of the sandbox image: any for Linux that the engine has.
    mode
        How the workspace gets in: auto, overlay, copy.
    timeout
        Seconds after which the command is ended (exit code 124).
    network
        Shipped lists of hosts it may reach: none, python, node, rust, go, debian, git.
    allow
        A host it may reach: HOST (ports 80 and 443), HOST:PORT, *.HOST:PORT. Private addresses never.
    secret
        Name of a secret in the settings that is put into requests to its own hosts. The box sees a placeholder.
    forward
        Bring a port of the box to this machine's loopback: PORT, or PORT:PORT_HERE.
    patch
        Also write the patch to this file.
    keep
        If the command succeeds, keep what it changed as a set-up layer of this name, ignored files too.
    from_
        Start from the set-up layer of this name.
    include_ignored
        Export what the workspace's ignore rules cover, too.
    force
        Allow / or the home directory as the workspace.
    quiet
        No summary.
    json
        One JSON object on stdout instead of output and summary.
    terminal
        Give it your terminal: every key goes to it, Ctrl-C too. Without a command it is the image's shell.
    """
    _check_command(command, terminal=terminal, json=json)
    from corral import app  # late: start-up time, and a mistake above is told at once
    from corral.cli.activity import show_activity
    from corral.cli.summary import show_end

    request = app.ExecRequest(
        argv=[os.fsencode(part) for part in command],
        workspace=directory,
        env=parse_env(env or []),
        image=image,
        mode=mode,
        timeout_s=check_timeout(timeout),
        keep=keep,
        layer=from_,
        include_ignored=include_ignored,
        force=force,
        network=parse_network(network, allow, secret, forward),
    )
    on_wait = _ignore if quiet or json else note
    if terminal:
        from corral.cli.attended import execute_attended  # late: start-up time

        outcome = execute_attended(request, on_wait=on_wait)
    else:
        outcome = asyncio.run(_execute(request, silent=json, on_wait=on_wait))
    mask_output(outcome.redactor)
    if patch is not None:
        save_patch(outcome.patch_file, patch)
    if json:
        print_json(_to_json(outcome))
    elif not quiet:
        if keep is not None:
            note(f"kept as layer {keep}" if outcome.kept else f"layer {keep} was not kept: the command failed")
        show_end(outcome.outcome, outcome.run_id, outcome.patch_file, network=outcome.network)
        show_activity(outcome.activity)
    return outcome.exit_code


def _check_command(command: tuple[str, ...], *, terminal: bool, json: bool) -> None:
    if terminal and json:
        raise ConfigError("--terminal and --json are for different readers", hint="leave one of them out")
    if not terminal and (not command or not command[0]):
        raise ConfigError("no command given", hint="corral exec [options] -- CMD ...")
    if command and command[0].startswith("-"):
        # A mistyped option would be run as the command.
        raise ConfigError(
            f"{command[0]!r} is no option, and no command",
            hint="corral exec --help has the options; put -- before the command: corral exec [options] -- CMD ...",
        )


def _ignore(text: str) -> None:
    return


async def _execute(request: ExecRequest, *, silent: bool, on_wait: Callable[[str], None]) -> ExecOutcome:
    from corral import app  # late: start-up time
    from corral.cli.interrupt import cancel_on_signals
    from corral.cli.stdio import read_stdin

    if silent:
        return await cancel_on_signals(app.execute(request, stdin=read_stdin()))
    gone = asyncio.Event()
    out, err = (_Screen(stream, gone) for stream in (sys.stdout, sys.stderr))
    watch = Forwards().event if request.network.forwards else None

    def mask(redactor: Redactor) -> None:
        out.mask(redactor)
        err.mask(redactor)

    work = app.execute(
        request,
        stdin=read_stdin(),
        stdout=out.output.sink,
        stderr=err.output.sink,
        watch=watch,
        on_wait=on_wait,
        on_secrets=mask,
    )
    outcome = await cancel_on_signals(work, gone=gone)
    await out.finish()
    await err.finish()
    if gone.is_set():
        raise BrokenPipeError
    return outcome


class _Screen:
    """One of our own streams: raw bytes to a pipe or file, escaped text to a terminal."""

    def __init__(self, stream: TextIO, gone: asyncio.Event) -> None:
        from corral.cli.stdio import Output  # late: start-up time
        from corral.cli.terminal import TerminalFilter

        stream.flush()
        self._filter = TerminalFilter(colours=has_colour(stream)) if stream.isatty() else None
        self._masked: Stream | None = None
        self.output = Output(stream.fileno(), gone, self._escape if self._filter else bytes)

    def mask(self, redactor: Redactor) -> None:
        """From the first byte on, where a person looks at it. A pipe gets what the command wrote."""
        self._masked = redactor.stream() if self._filter else None

    async def finish(self) -> None:
        """Write what the filter held back."""
        if self._filter is not None and not self.output.broken:
            rest = self._masked.finish() if self._masked else b""
            await self.output.write(self._filter.feed(rest, final=True).encode())

    def _escape(self, data: memoryview) -> bytes:
        assert self._filter is not None
        # SECURITY: no secret on a screen; test_a_terminal_shows_no_secret
        return self._filter.feed(self._masked.feed(data) if self._masked else data).encode()


def parse_env(pairs: list[str]) -> dict[str, str]:
    """`NAME=VALUE` as given, `NAME` from our own environment. Raises ConfigError."""
    env: dict[str, str] = {}
    for pair in pairs:
        name, given, value = pair.partition("=")
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a variable's name", hint="-e NAME=VALUE, or -e NAME to pass on yours")
        if not given:
            if name not in os.environ:
                raise ConfigError(f"{name!r} is not set here", hint=f"-e {name}=VALUE")
            value = os.environ[name]
        env[name] = value
    return env


def check_timeout(timeout: float | None) -> float | None:
    """A usable number of seconds. Raises ConfigError."""
    if timeout is not None and not 0 < timeout < 1e7:
        raise ConfigError(f"--timeout {timeout!r} is no number of seconds above 0", hint="leave it out for no limit")
    return timeout


def save_patch(kept: Path | None, target: Path) -> None:
    """Copy the run's patch to where the user wants it; an unchanged workspace gives an empty file."""
    try:
        if kept is None:
            target.write_bytes(b"")
        else:
            shutil.copyfile(kept, target)
    except OSError as error:
        raise ConfigError(
            f"cannot write the patch to {str(target)!r}: {error.strerror}",
            hint=f"the run kept it as {kept}" if kept else "nothing had changed",
        ) from None


def _to_json(done: ExecOutcome) -> dict[str, object]:
    from corral.app import explain  # late: start-up time
    from corral.cli.activity import SHOWN_JSON, activity_json
    from corral.sandbox.used import build_call_resources

    result, outcome = done.result, done.outcome
    return {
        "run": done.run_id,
        "exit_code": done.exit_code,
        "status": result.status.value if result else None,
        "signal": result.signal if result else None,
        "cause": done.cause or None,
        "limits_touched": list(done.limits_touched),
        "stdout": _describe_stream(result.stdout, done.redactor) if result else None,
        "stderr": _describe_stream(result.stderr, done.redactor) if result else None,
        "error": explain(outcome.error) if outcome.error else None,
        "duration_s": round(outcome.duration_s, 3),
        "resources": {
            "command": build_call_resources(result).model_dump() if result else None,
            "run": outcome.resources.model_dump(),
        },
        "box": describe_box(outcome.box) if outcome.box else None,
        "activity": activity_json(done.activity, most=SHOWN_JSON),
        "network": asdict(done.network) if done.network else None,
        "changes": outcome.patch.model_dump(mode="json") if outcome.patch else None,
        "patch": str(done.patch_file) if done.patch_file else None,
        "layer": done.kept,
        "run_dir": str(done.run_dir),
    }


def describe_box(box: BoxInfo) -> dict[str, object]:
    """The box as JSON."""
    return {
        "image": box.image,
        "image_id": box.image_id,
        "runtime": box.runtime,
        "capabilities": list(box.capabilities),
        "mode": box.mode.value,
        "mode_reason": box.mode_reason or None,
        "masked": [visible(one.path) for one in box.masked],
        "warnings": list(box.warnings),
        "lacks": list(box.lacks),
        "start_s": round(box.start_s, 3),
    }


def _describe_stream(capture: Capture, redactor: Redactor) -> dict[str, object]:
    head, tail = base64.b64decode(capture.head_b64), base64.b64decode(capture.tail_b64)
    stream = redactor.stream()  # what stands over the border of the two is masked, too
    shown = stream.feed(head)
    if len(head) + len(tail) < capture.total_bytes:
        shown, stream = shown + stream.finish(), redactor.stream()
    rest = stream.feed(tail) + stream.finish()
    return {
        "head": shown.decode("utf-8", "replace"),
        "tail": rest.decode("utf-8", "replace"),
        "total_bytes": capture.total_bytes,
    }
