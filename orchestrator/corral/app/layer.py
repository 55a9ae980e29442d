"""Set-up layers of a run: the one it starts from, the one it leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from corral.app.request import BoxRequest, ExecRequest
from corral.config import Settings
from corral.errors import ConfigError
from corral.sandbox.spec import SandboxSpec, WorkspaceMode
from corral.schema.path import show_path

if TYPE_CHECKING:
    from corral.agent.run import Outcome
    from corral.app.prepare import Prepared
    from corral.store.layer import Layer

_KEPT_PATHS, _SHOWN_PATHS = 20, 3


def check_layers(request: BoxRequest, settings: Settings) -> Layer | None:
    """The layer to start from. Raises ConfigError for one that is not there, or that cannot be used like this."""
    keep = request.keep if isinstance(request, ExecRequest) else None
    if keep is None and request.layer is None:
        return None
    from corral.store.layer import check_layer_name, find_layer  # late: most runs have none

    if keep is not None:
        check_layer_name(keep)
    if keep is not None and request.layer is not None:
        raise ConfigError("--keep and --from do not go together", hint="keep one layer that has all of the set-up")
    mode = request.mode or settings.mode
    if mode == WorkspaceMode.COPY:
        raise ConfigError("a set-up layer needs the workspace as an overlay", hint="leave --mode copy out")
    if request.layer is None:
        return None
    layer = find_layer(settings.layers_dir(), request.layer)
    if layer.facts.mount_point != request.mount_point:
        raise ConfigError(
            f"layer {layer.name!r} was made at {layer.facts.mount_point!r}, not at {request.mount_point!r}",
            hint="paths in it would lead nowhere",
        )
    return layer


@contextmanager
def lay(spec: SandboxSpec, layer: Layer | None) -> Iterator[SandboxSpec]:
    """The box with the layer below its own changes; the layer stays for as long."""
    if layer is None:
        yield spec
        return
    from corral.store.layer import hold_layer  # late: most runs have none

    with hold_layer(layer) as tree:
        yield replace(spec, layer=tree, notes=describe_layer(layer, spec.image))


def describe_layer(layer: Layer, image: str) -> tuple[str, ...]:
    """What a person should know of a box that starts from it."""
    facts, notes = layer.facts, list[str]()
    if facts.image != image:
        notes.append(f"layer {layer.name!r} was made in another image, {facts.image}: programs in it may not run")
    if facts.exported:
        more = facts.exported_count - _SHOWN_PATHS
        names = ", ".join(facts.exported[:_SHOWN_PATHS]) + (f" and {more} more" if more > 0 else "")
        notes.append(
            f"layer {layer.name!r} changes the workspace itself ({names}): that is in the patch of run {facts.run_id}, "
            "not in this one's"
        )
    return tuple(notes)


def keep_changes(parts: Prepared, outcome: Outcome, name: str) -> str | None:
    """Keep what the command changed; None when it did not succeed. Raises ConfigError, RecordError."""
    from corral.store.layer import LayerFacts, keep_layer  # late: most runs have none

    box = outcome.box
    if box is None or outcome.error is not None or outcome.exit_code != 0:
        return None
    if box.mode is not WorkspaceMode.OVERLAY:
        raise ConfigError(
            f"layer {name!r} was not kept: the workspace was copied ({box.mode_reason})",
            hint="a layer needs the workspace as an overlay",
        )
    workspace = os.stat(parts.spec.workspace)
    files = outcome.patch.files if outcome.patch is not None else ()
    facts = LayerFacts(
        run_id=parts.run_dir.run_id,
        workspace=parts.origin or str(parts.spec.workspace),
        mount_point=parts.spec.mount_point,
        image=box.image,
        image_id=box.image_id,
        command=parts.command,
        exported=tuple(show_path(one.path) for one in files[:_KEPT_PATHS]),
        exported_count=len(files),
    )
    keep_layer(
        parts.settings.layers_dir(),
        name,
        parts.run_dir.path / "box" / "upper",
        facts,
        skip=[one.path for one in box.masked],
        owner=(workspace.st_uid, workspace.st_gid),
        max_bytes=box.limits.workspace_bytes,
    )
    return name
