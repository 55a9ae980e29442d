"""The demonstrations: whole runs of corral on repositories made for it, judged by what is on disk afterwards."""

from __future__ import annotations

from corral.demo.attack import AttackDemo, AttackReport
from corral.demo.fix import FixDemo, FixReport, Step, View
from corral.demo.model import MAX_COST_USD, ModelChoice, choose_model
from corral.demo.verdict import Verdict
from corral.demo.workspace import copied_example, require_image

__all__ = [
    "MAX_COST_USD",
    "AttackDemo",
    "AttackReport",
    "FixDemo",
    "FixReport",
    "ModelChoice",
    "Step",
    "Verdict",
    "View",
    "choose_model",
    "copied_example",
    "require_image",
]
