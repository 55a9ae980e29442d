"""Boxes that are started before anybody asks for one: made ahead, handed out once, thrown away when they do not fit."""

from corral.sandbox.pool.pool import Pool, PoolPlan
from corral.sandbox.pool.yard import Yard, find_stale_yards

__all__ = ["Pool", "PoolPlan", "Yard", "find_stale_yards"]
