"""Boxes of images that corral did not make: found, given a toolbox with a Python of its own, and the box's user."""

from corral.sandbox.foreign.find import FoundImage, find_image
from corral.sandbox.foreign.prepare import prepare_entry
from corral.sandbox.foreign.runtime import fill_runtime, find_old_runtimes, remove_runtime
from corral.sandbox.foreign.tree import check_place, hold_tree, remove_old_trees, take_tree

__all__ = [
    "FoundImage",
    "check_place",
    "fill_runtime",
    "find_image",
    "find_old_runtimes",
    "hold_tree",
    "prepare_entry",
    "remove_old_trees",
    "remove_runtime",
    "take_tree",
]
