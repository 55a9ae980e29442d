"""Where a run works: a directory of this machine, or one inside the image, which is taken out first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from corral.app.request import BoxRequest
from corral.config import Settings
from corral.sandbox.spec import SANDBOX_IMAGE

IN_IMAGE = "image:"

Request = TypeVar("Request", bound=BoxRequest)


@contextmanager
def hold_place(request: BoxRequest) -> Iterator[None]:
    """A tree that was taken out of an image stays for as long."""
    if not request.origin:
        yield
        return
    from corral.sandbox.foreign import hold_tree  # late: start-up time

    with hold_tree(request.workspace):
        yield


async def place_workspace(
    request: Request, settings: Settings, *, on_take: Callable[[str], None] = lambda text: None
) -> Request:
    """The request with a workspace of this machine. `on_take` is told what is about to take a while.

    Raises ConfigError, SandboxError.
    """
    named = str(request.workspace)
    if not named.startswith(IN_IMAGE):
        return request
    from corral.sandbox.engine import Engine  # late: start-up time
    from corral.sandbox.foreign import check_place, take_tree

    image = request.image or settings.image or SANDBOX_IMAGE
    place = check_place(named.removeprefix(IN_IMAGE))
    tree = await take_tree(
        Engine(),
        image,
        place,
        settings.trees_dir(),
        on_start=lambda: on_take(f"taking {place} out of {image}; once for this image"),
    )
    return replace(request, workspace=tree, mount_point=place, origin=f"{IN_IMAGE}{place}")
