"""How a workspace gets into a box: overlay or copy, ownership, masks, limits, and proof that it is the right one."""

from corral.sandbox.workspace.baseline import Baseline, load_baseline, load_entries
from corral.sandbox.workspace.kernel.link_dir import LinkDir, find_stale_link_dirs
from corral.sandbox.workspace.owner import remove_stale_locks
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
    "Breach",
    "CopyMeter",
    "DiskWatch",
    "FoundSecrets",
    "LinkDir",
    "Meter",
    "Packed",
    "PreparedWorkspace",
    "UpperMeter",
    "Usage",
    "check_workspace",
    "cover_secrets",
    "find_secrets",
    "find_stale_link_dirs",
    "load_baseline",
    "load_entries",
    "prepare_workspace",
    "remove_stale_locks",
]
