"""`corral doctor --sandbox`: starts a box as every run does, looks at it from inside and outside, and removes it."""

from __future__ import annotations

import asyncio
import platform
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from corral.app.prepare import build_spec
from corral.app.removal import remove_run
from corral.app.request import BoxRequest
from corral.config import Settings
from corral.doctor import inside
from corral.doctor.box import InsideFacts, judge_engine_view, judge_inside, judge_toolbox
from corral.doctor.check import Check, Status
from corral.doctor.engine import judge_no_engine
from corral.doctor.host import check_settings
from corral.errors import CorralError, ToolError
from corral.sandbox.container import load_seccomp_profile
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.probe import NoEngine, find_leftovers, inspect_container, probe_engine
from corral.sandbox.spec import SandboxSpec
from corral.schema.visible import visible
from corral.store.run_dir import RunDir

_LOOK_S = 30.0
_MAX_BYTES = 64 << 10


def run_sandbox_checks() -> tuple[Check, ...]:
    """Every check on a box of this configuration, in the order to read them. Leaves nothing behind."""
    settings, settings_check = check_settings()
    if settings_check.status is Status.FAIL:
        return (settings_check,)
    facts = probe_engine()
    if isinstance(facts, NoEngine):
        return judge_no_engine(facts)
    try:
        with tempfile.TemporaryDirectory(prefix="box-doctor-") as workspace:
            return asyncio.run(_check_box(settings, Path(workspace)))
    except CorralError as error:
        return (Check("start", Status.FAIL, error.message, error.hint),)


async def _check_box(settings: Settings, workspace: Path) -> tuple[Check, ...]:
    draft = build_spec(settings, BoxRequest(workspace=workspace))
    with RunDir.create(settings.runs_dir()) as run_dir:
        spec = replace(draft, run_dir=run_dir.path, run_id=run_dir.run_id)
    try:
        async with DockerSandbox(spec) as box:
            checks = await _look(box, spec)
        left = await asyncio.to_thread(find_leftovers, spec.run_id)
    finally:
        await remove_run(spec.run_id, settings.runs_dir())
    end = Check("end", Status.OK, "nothing of the box is left in the engine")
    if left:
        end = Check("end", Status.FAIL, f"left in the engine: {', '.join(left)}", "corral gc")
    return (*checks, end)


async def _look(box: DockerSandbox, spec: SandboxSpec) -> tuple[Check, ...]:
    seen: dict[str, Any] = await asyncio.to_thread(inspect_container, box.info.box_id)
    profile = load_seccomp_profile(spec.seccomp)
    started = Check("start", Status.OK, f"a box of {visible(box.info.image)} after {box.info.start_s:.2f} s")
    return (
        started,
        *await _ask(box, debug=spec.seccomp == "debug"),
        *judge_toolbox(box.info),
        *judge_engine_view(seen, seccomp=profile, default_profile=load_seccomp_profile()),
    )


async def _ask(box: DockerSandbox, *, debug: bool) -> tuple[Check, ...]:
    """What the untrusted user finds. The program is sent along: the image needs Python, nothing of ours."""
    text = bytearray()
    source = Path(inside.__file__).read_text(encoding="utf-8")
    hint = "an image without Python is looked at from outside only"
    try:
        result = await box.exec(
            ["python3", "-I", "-S", "-c", source],
            timeout_s=_LOOK_S,
            stdout=lambda part: text.extend(part),
            stream_limit=_MAX_BYTES,
        )
        facts = InsideFacts.model_validate_json(bytes(text))
    except ToolError as error:
        return (Check("inside", Status.WARN, f"not asked: {error.message}", hint),)
    except ValidationError:
        missing = result.exit_code == 127
        detail = "there is no python3 to ask with" if missing else f"no usable answer (exit code {result.exit_code})"
        return (Check("inside", Status.WARN if missing else Status.FAIL, detail, hint),)
    return judge_inside(facts, box.info, host_name=platform.node(), debug=debug)
