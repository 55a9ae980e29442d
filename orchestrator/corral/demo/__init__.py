"""The demonstrations: whole runs of corral on repositories made for it, each step judged by what is on disk after it."""

from __future__ import annotations

from corral.demo.fix import FixDemo, FixReport, Step, View
from corral.demo.model import MAX_COST_USD, ModelChoice, choose_model
from corral.demo.workspace import copied_example, require_image

__all__ = [
    "MAX_COST_USD",
    "FixDemo",
    "FixReport",
    "ModelChoice",
    "Step",
    "View",
    "choose_model",
    "copied_example",
    "require_image",
]
