"""`corral shell`: a person's shell in a fresh box."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from corral.cli.exec import exec_command


def shell(
    *,
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
) -> int:
    """Look around in a fresh box: the image's shell, in your terminal.

    Every key goes to the shell, Ctrl-C too. When it ends, its exit code is corral's and a summary says what it changed
    and what it tried, as after `corral exec`. What it may do to your terminal is to draw on it: no titles, no
    clipboard, no questions that the terminal would answer.

    Parameters
    ----------
    directory
        The workspace; the box sees it as /workspace. image:PATH takes a directory of the image, at its own place.
    env
        NAME=VALUE for the shell, or NAME to pass on yours. The box sees it: never pass a secret.
    image
        Image of the box instead of the sandbox image: any for Linux that the engine has, and that has a shell.
    mode
        How the workspace gets in: auto, overlay, copy.
    timeout
        Seconds after which the shell is ended (exit code 124).
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
        If the shell ends with 0, keep what it changed as a set-up layer of this name, ignored files too.
    from_
        Start from the set-up layer of this name.
    include_ignored
        Export what the workspace's ignore rules cover, too.
    force
        Allow / or the home directory as the workspace.
    quiet
        No summary.
    """
    return exec_command(
        directory=directory,
        env=env,
        image=image,
        mode=mode,
        timeout=timeout,
        network=network,
        allow=allow,
        secret=secret,
        forward=forward,
        patch=patch,
        keep=keep,
        from_=from_,
        include_ignored=include_ignored,
        force=force,
        quiet=quiet,
        terminal=True,
    )
