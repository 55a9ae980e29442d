"""Which image a box runs, and where its toolbox comes from."""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import dataclass

from corral.errors import ImageError
from corral.sandbox.engine import Engine, ImageFacts, run_in_thread
from corral.sandbox.foreign.runtime import PLACE
from corral.sandbox.spec import SANDBOX_IMAGE

_BUILD_HINT = "build it with: corral image build"
_MAX_ENV, _MAX_VARIABLES = 64 << 10, 1000
"""Every process of the box is started with them: half of what the kernel takes as one value, a tenth in all."""
_MAX_VOLUMES = 32
"""Each is a mount of its own: a table that grows slows every start."""


@dataclass(frozen=True)
class FoundImage:
    """An image that the engine has and can run."""

    facts: ImageFacts
    sandbox: ImageFacts | None
    """The sandbox image that lends its toolbox; None when the image has its own."""


async def find_image(engine: Engine, name: str) -> FoundImage:
    """Raises ImageError for an image that the engine does not have or cannot run."""
    if name.partition(":")[0] == SANDBOX_IMAGE:
        return FoundImage(
            await _find_sandbox_image(engine) if name == SANDBOX_IMAGE else await _inspect(engine, name), None
        )
    # Both to their end: nothing of ours is left running when the first has failed.
    facts, sandbox = await asyncio.gather(_inspect(engine, name), _find_lender(engine), return_exceptions=True)
    for outcome in (facts, sandbox):
        if isinstance(outcome, BaseException):
            raise outcome
    assert isinstance(facts, ImageFacts) and not isinstance(sandbox, BaseException)
    if sandbox is not None and facts.id == sandbox.id:
        return FoundImage(facts, None)
    # SECURITY: no label is believed, nor that it was built on our image: what runs as root in a box is ours
    # (test_an_image_that_claims_to_be_ours_is_lent_a_toolbox_all_the_same).
    if sandbox is None:
        raise ImageError(
            f"the sandbox image is missing, which lends its toolbox to images such as {name!r}", hint=_BUILD_HINT
        )
    _check_platform(name, facts, sandbox)
    _check_settings(name, facts)
    return FoundImage(facts, sandbox)


async def _inspect(engine: Engine, name: str) -> ImageFacts:
    return await engine.inspect_image(name)


async def _find_sandbox_image(engine: Engine) -> ImageFacts:
    """The one made from this very installation where it is there.

    Others under the plain name are an older corral's, or stand on a base of the user's own.
    """
    try:
        return await engine.inspect_image(await run_in_thread(_name_own_image, name="corral-image"))
    except ImageError:
        return await engine.inspect_image(SANDBOX_IMAGE)


async def _find_lender(engine: Engine) -> ImageFacts | None:
    try:
        return await _find_sandbox_image(engine)
    except ImageError:
        return None


def _check_platform(name: str, facts: ImageFacts, sandbox: ImageFacts) -> None:
    """The sandbox image was made on this engine, so it shows what runs there."""
    if facts.platform != sandbox.platform:
        raise ImageError(
            f"{name!r} is an image for {facts.platform}, and this engine runs {sandbox.platform}",
            hint=f"pull or build it for {sandbox.platform}",
        )


def _check_settings(name: str, facts: ImageFacts) -> None:
    """What an image declares for its containers, in numbers and places that a box can take."""
    if sum(map(len, facts.env)) > _MAX_ENV or len(facts.env) > _MAX_VARIABLES or len(facts.volumes) > _MAX_VOLUMES:
        raise ImageError(
            f"{name!r} declares more than a box takes: {_MAX_VARIABLES} variables, {_MAX_ENV} bytes of them, "
            f"{_MAX_VOLUMES} volumes",
            hint="build an image with fewer",
        )
    for volume in facts.volumes:
        if posixpath.normpath(f"/{volume.lstrip('/')}").startswith(f"{PLACE}/"):
            raise ImageError(
                f"{name!r} declares a volume at {volume!r}, where the toolbox is", hint="build an image without it"
            )


def _name_own_image() -> str:
    from corral.sandbox.image import expected_tag  # late: start-up time

    return expected_tag()
