"""Puts a patch onto a workspace, all or nothing, without running git there."""

from __future__ import annotations

from pathlib import Path

from corral.patch.apply.place import apply_plan
from corral.patch.apply.plan import ApplyPlan, Step, plan_apply
from corral.patch.apply.recover import Recovery, recover_applies

__all__ = ["ApplyPlan", "Recovery", "Step", "apply_patch", "apply_plan", "plan_apply", "recover_applies"]


def apply_patch(
    patch: bytes,
    workspace: Path,
    *,
    is_approved: bool = False,
    allow_leaving_links: bool = False,
    three_way: bool = False,
    objects: Path | None = None,
) -> ApplyPlan:
    """Plan and apply in one go. The plan that comes back tells what was done; its results are gone.

    What a killed apply left in the workspace is rolled back first.
    """
    recover_applies(workspace)
    with plan_apply(patch, workspace, three_way=three_way, objects=objects) as plan:
        apply_plan(plan, is_approved=is_approved, allow_leaving_links=allow_leaving_links)
    return plan
