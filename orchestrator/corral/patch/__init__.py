"""From a run's changes to a reviewed patch, and from a patch to a changed workspace."""

from corral.patch.apply import ApplyPlan, Recovery, apply_patch, apply_plan, plan_apply, recover_applies
from corral.patch.build import build_patch
from corral.patch.checks import check_patch
from corral.patch.collect.manifest import collect_copy
from corral.patch.collect.overlay import collect_overlay
from corral.patch.collect.selection import ChangeSet, ExportLimits

__all__ = [
    "ApplyPlan",
    "ChangeSet",
    "ExportLimits",
    "Recovery",
    "apply_patch",
    "apply_plan",
    "build_patch",
    "check_patch",
    "collect_copy",
    "collect_overlay",
    "plan_apply",
    "recover_applies",
]
