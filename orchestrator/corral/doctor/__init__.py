"""`corral doctor`: what corral needs here, whether it is there, and how to get it."""

from __future__ import annotations

import platform
from pathlib import Path

from corral.doctor.check import Check, Status, worst
from corral.doctor.engine import judge_engine, judge_no_engine
from corral.doctor.host import (
    check_data_dir,
    check_disk,
    check_git,
    check_kernel,
    check_mounts,
    check_python,
    check_settings,
    check_user,
)
from corral.errors import SandboxError
from corral.sandbox.image import expected_tag, find_image
from corral.sandbox.probe import NoEngine, probe_engine, time_runtime
from corral.sandbox.spec import RUNC

__all__ = ["Check", "Status", "run_checks", "worst"]


def run_checks(*, engine_url: str | None = None) -> tuple[Check, ...]:
    """Every check, in the order to read them. Needs nothing to work and changes nothing."""
    settings, settings_check = check_settings()
    runs = settings.runs_dir()
    host = (check_user(), check_python(), check_git(), settings_check, check_data_dir(runs), check_disk("disk", runs))
    facts = probe_engine(engine_url)
    if isinstance(facts, NoEngine):
        return (*judge_no_engine(facts), check_kernel(platform.release()), check_mounts(), *host)
    try:
        wanted = settings.image or expected_tag()
        image = find_image(wanted, engine_url=engine_url) or find_image(engine_url=engine_url)
        start: float | str | None = None
        if settings.runtime != RUNC and settings.runtime in facts.runtimes and image is not None:
            start = time_runtime(settings.runtime, image.image_id, engine_url)
        engine = judge_engine(facts, image, runtime=settings.runtime, start=start)
    except SandboxError as error:
        engine = (Check("image", Status.FAIL, error.message, error.hint),)
    except FileNotFoundError as error:
        engine = (Check("image", Status.FAIL, str(error), "install corral again"),)
    root = Path(facts.root_dir)
    layers = (check_disk("engine disk", root),) if facts.is_local and root.is_absolute() else ()
    return (*engine, check_kernel(facts.kernel), check_mounts(), *layers, *host)
