"""A pool of boxes for a program that starts many, as the user's settings say they are."""

from __future__ import annotations

from corral.app.prepare import build_spec
from corral.app.request import BoxRequest
from corral.config import load_settings
from corral.sandbox.lasting import make_lasting
from corral.sandbox.pool import Pool, PoolPlan
from corral.sandbox.workspace import check_workspace
from corral.store.removal import remove_tree


def build_pool(request: BoxRequest, *, is_for_one: bool, size: int, max_age_s: float) -> Pool:
    """Not started yet. Raises ConfigError."""
    settings = load_settings()
    spec = build_spec(settings, request)
    if is_for_one:
        check_workspace(spec.workspace, settings.runs_dir(), force=spec.force)
    plan = PoolPlan(
        spec,
        settings.pools_dir(),
        remove_tree,
        make_lasting,
        is_for_one=is_for_one,
        size=size,
        max_age_s=max_age_s,
    )
    return Pool(plan)
