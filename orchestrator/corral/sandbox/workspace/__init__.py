"""How a workspace gets into a box: overlay or copy, ownership, masks, limits, and proof that it is the right one."""

from corral.sandbox.workspace.baseline import Baseline, load_baseline, load_entries
from corral.sandbox.workspace.handover import has_room, is_masked_alike, is_same_place, move_in
from corral.sandbox.workspace.kernel.link_dir import LinkDir, find_stale_link_dirs
from corral.sandbox.workspace.mask.search import SearchMemo
from corral.sandbox.workspace.overlay import attach_overlay
from corral.sandbox.workspace.owner import BoxOwner, remove_stale_locks, reserve_owner
from corral.sandbox.workspace.precheck import check_workspace
from corral.sandbox.workspace.prepare import FoundSecrets, cover_secrets, find_secrets, prepare_workspace
from corral.sandbox.workspace.prepared import PreparedWorkspace
from corral.sandbox.workspace.tree.pack import Packed
from corral.sandbox.workspace.tree.remote import CopyMeter
from corral.sandbox.workspace.tree.usage import Meter, UpperMeter, Usage
from corral.sandbox.workspace.tree.watcher import Bounds, Breach, DiskWatch

__all__ = [
    "Baseline",
    "Bounds",
    "BoxOwner",
    "Breach",
    "CopyMeter",
    "DiskWatch",
    "FoundSecrets",
    "LinkDir",
    "Meter",
    "Packed",
    "PreparedWorkspace",
    "SearchMemo",
    "UpperMeter",
    "Usage",
    "attach_overlay",
    "check_workspace",
    "cover_secrets",
    "find_secrets",
    "find_stale_link_dirs",
    "has_room",
    "is_masked_alike",
    "is_same_place",
    "load_baseline",
    "load_entries",
    "move_in",
    "prepare_workspace",
    "remove_stale_locks",
    "reserve_owner",
]
