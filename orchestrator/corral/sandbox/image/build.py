"""The sandbox image: found by content, or built and tagged `corral-sandbox:<content hash>` and `:latest`.

The base comes from a registry where one answers, else from the distribution's packages (image_base). Both are
cached by content, so a build with nothing changed is one question to the engine.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound

from corral.errors import EngineUnavailable, ImageError
from corral.sandbox.image.base import Base, choose_address, choose_base, open_client
from corral.sandbox.image.context import IMAGE_NAME, BuildContext, load_context
from corral.sandbox.reach import explain
from corral.schema.visible import visible

_ENGINE_TIMEOUT_S = 600
"""Of one silent stretch, not of the whole build: an import answers only when all layers are on disk."""
_KEEP_BUILDS = 3
_KEEP_S = 24 * 3600.0
_LABEL = "corral.image"
_PROXY_NAMES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ImageReport:
    """One sandbox image, and where it came from."""

    image_id: str
    tag: str
    current: bool
    """It was made from exactly the files this installation ships."""
    base: str
    source: str
    """Where the base came from: `local`, `registry` or `packages`."""
    size_bytes: int
    built: bool = False
    """This call built it; False when it was there already."""
    seconds: float = 0.0


def build_image(
    *,
    base: str | None = None,
    rebuild: bool = False,
    on_progress: Progress = lambda line: None,
    engine_url: str | None = None,
) -> ImageReport:
    """The image of this installation, built when it is missing.

    `base` names an image to build on; without it a registry's, else one made from packages. `rebuild` builds even
    when the content is unchanged (for newer packages of the distribution). `engine_url` is for an engine other than
    the environment's. Raises ImageError, EngineUnavailable.
    """
    started = time.monotonic()
    with _open_engine(engine_url) as engine:
        context = load_context()
        tag = expected_tag(context, base=base)
        found = None if rebuild else _inspect(engine, tag, current=True)
        if found is None:
            chosen = choose_base(
                engine, context, name=base, fresh=rebuild, engine_url=engine_url, on_progress=on_progress
            )
            _run_build(engine, context, chosen, tag=tag, fresh=rebuild, on_progress=on_progress)
            found = _inspect(engine, tag, current=True)
            if found is None:
                raise ImageError(f"the engine built {tag!r} and then does not know it")
            found = replace(found, built=True)
        engine.api.tag(tag, IMAGE_NAME, "latest")
        if found.built:
            _drop_old_builds(engine, keep=tag)
        return replace(found, seconds=time.monotonic() - started)


def find_image(name: str = IMAGE_NAME, *, engine_url: str | None = None) -> ImageReport | None:
    """What the engine has under `name`, or None. `current` is told for corral's own images only."""
    with _open_engine(engine_url) as engine:
        found = _inspect(engine, name, current=False)
        own = None if found is None else _inspect(engine, expected_tag(load_context()), current=True)
        if found is not None and own is not None and own.image_id == found.image_id:
            return replace(found, current=True)
        return found


def expected_tag(context: BuildContext | None = None, *, base: str | None = None) -> str:
    """The tag that the image of this very installation has."""
    return f"{IMAGE_NAME}:{(context or load_context()).content_hash(base or '')}"


@contextlib.contextmanager
def _open_engine(engine_url: str | None) -> Iterator[docker.DockerClient]:
    """The engine, with its errors turned into ours."""
    try:
        with contextlib.closing(open_client(engine_url, timeout_s=_ENGINE_TIMEOUT_S)) as engine:
            yield engine
    except APIError as error:
        raise ImageError(f"the engine refused: {visible(error.explanation or str(error), limit=500)}") from error
    except (DockerException, OSError) as error:
        if not (address := choose_address(engine_url)).is_local:
            raise explain("answer", error, address) from error
        raise EngineUnavailable(
            f"no container engine answers: {visible(str(error), limit=500)}",
            hint="`corral doctor` says what is missing",
        ) from error


def _inspect(engine: docker.DockerClient, name: str, *, current: bool) -> ImageReport | None:
    try:
        raw: dict[str, Any] = engine.api.inspect_image(name)  # type: ignore[no-untyped-call]
    except ImageNotFound:
        return None
    labels = (raw.get("Config") or {}).get("Labels") or {}
    return ImageReport(
        image_id=raw["Id"],
        tag=name,
        current=current,
        base=labels.get(f"{_LABEL}.base", ""),
        source=labels.get(f"{_LABEL}.source", ""),
        size_bytes=raw["Size"],
    )


def _run_build(
    engine: docker.DockerClient, context: BuildContext, base: Base, *, tag: str, fresh: bool, on_progress: Progress
) -> None:
    on_progress(f"building {tag} on {base.name} ({base.source})")
    answers = engine.api.build(
        fileobj=io.BytesIO(context.archive()),
        custom_context=True,
        tag=tag,
        buildargs={"BASE": base.name, **{name: os.environ[name] for name in _PROXY_NAMES if name in os.environ}},
        labels={f"{_LABEL}.base": base.name, f"{_LABEL}.source": base.source},
        # A base made from packages needs nothing. A foreign one fetches what it lacks; the engine may have no bridge.
        network_mode="none" if base.source == "packages" else "host",
        nocache=fresh,
        rm=True,
        forcerm=True,
        decode=True,
    )
    last: deque[str] = deque(maxlen=20)
    for answer in answers:
        if "error" in answer:
            cause = next((line for line in reversed(last) if line.startswith("corral: ")), str(answer["error"]))
            raise ImageError(
                f"the image build failed: {visible(cause, limit=500)}",
                hint=visible(" | ".join(last), limit=500) or None,
            )
        for line in str(answer.get("stream", "")).splitlines():
            if line.strip():
                last.append(line.strip())
            if line.startswith("Step ") and " : RUN " in line:
                on_progress(visible(line, limit=200))


def _drop_old_builds(engine: docker.DockerClient, *, keep: str) -> None:
    """One that a container uses stays, the engine sees to that."""
    for name in find_old_builds(engine.api.images(IMAGE_NAME), now_s=time.time()):
        if name != keep:
            with contextlib.suppress(APIError):
                engine.api.remove_image(name)


def find_old_builds(images: Iterable[Mapping[str, Any]], *, now_s: float) -> list[str]:
    """Tags of all but the newest builds. One of the last day is none: two installations on one engine would take it
    from each other."""
    builds = sorted(images, key=lambda image: int(image["Created"]), reverse=True)
    old = [image for image in builds[_KEEP_BUILDS:] if now_s - int(image["Created"]) >= _KEEP_S]
    return [name for image in old for name in image["RepoTags"] or () if name != f"{IMAGE_NAME}:latest"]
