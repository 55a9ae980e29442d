"""A workspace made ready for one box: how it gets in, as whom the box runs, and what must go afterwards."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from corral.sandbox.base import MaskedFile
from corral.sandbox.spec import RUNC, SandboxSpec, WorkspaceMode
from corral.sandbox.workspace import proof
from corral.sandbox.workspace.baseline import FILE, Baseline, append_entry, write_baseline
from corral.sandbox.workspace.copy import describe_path, iterate_in_thread
from corral.sandbox.workspace.overlay import Overlay
from corral.sandbox.workspace.tree.pack import Packed, TreePack
from corral_protocol.message import HelloReply

_NAMED_SKIPS = 5


@dataclass
class PreparedWorkspace:
    """What prepare_workspace made. Call discard() in any case; its methods but tar_stream() block for milliseconds."""

    mode: WorkspaceMode
    """OVERLAY or COPY."""
    mode_reason: str
    """Why it is not the overlay, in words; "" for the overlay."""
    uid: int
    gid: int
    host_uid: int
    """The same user as this host sees it: another number where the engine maps ids."""
    mount: dict[str, object]
    """The entry for HostConfig.Mounts."""
    base: Baseline
    spec: SandboxSpec
    root: int
    """An open descriptor of the workspace."""
    overlay: Overlay | None
    cleanup: contextlib.ExitStack
    masked: tuple[MaskedFile, ...] = ()
    """Every path is covered with all that is below it; an export leaves these out. Empty before cover_secrets()."""
    masks: dict[bytes, bytes | None] = field(default_factory=dict)
    """For a copy: what the box sees at those paths; None for an empty directory."""
    has_kernel_limits: bool = False
    """Whether the workspace is a file system of its own with a size: a copy in memory."""
    notes: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should be told. Grows when a copy had to leave something out."""
        return tuple(self.notes)

    @property
    def baseline(self) -> Path:
        """The state of the original at the start, for the export; see baseline.load_baseline and load_entries."""
        return self.spec.run_dir / FILE

    @property
    def upper(self) -> Path | None:
        """The directory that holds the box's changes; None for a copy."""
        return self.spec.run_dir / "box" / "upper" if self.overlay else None

    def share_file(self, name: str, content: bytes) -> str:
        """A file for the box's /etc (hosts, passwd, group), where the engine sees our files, else "".

        It lasts until after_start().
        """
        if self.overlay is None:
            return ""
        path = self.overlay.links.shared(name)
        try:
            path.write_bytes(content)
            # SECURITY: the box sees this path in its mount table, so it lies with the links and not in the run's
            # directory, whose name has the user's in it (tests/security/test_attacks.py).
            path.chmod(0o644)
        except OSError:
            return ""  # a full disk: told by whoever cannot do without
        return str(path)

    def verify(self, hello: HelloReply) -> str | None:
        """None when the box provably sees this very workspace, else why not. Before any untrusted process runs.

        What proved it is taken away: the first command is not to find it."""
        if self.overlay is None:
            return None
        if self.overlay.before is None:
            raise RuntimeError("cover_secrets() comes before the start of a box")
        now = proof.list_merged(self.root, *self.overlay.above)
        # A runtime that was chosen may bring a kernel of its own, which has started at another time than the host's.
        is_same_kernel = self.spec.runtime == RUNC
        nonce = self.overlay.nonce
        mismatch = proof.find_mismatch(hello, nonce, self.overlay.before, now, is_same_kernel=is_same_kernel)
        if mismatch is None:
            with self.lock:
                self.overlay.remove_proof()
        return mismatch

    def after_start(self) -> None:
        """Take away what only the start needed; the running box keeps its mount. Idempotent."""
        with self.lock:
            if self.overlay is not None:
                self.overlay.remove_temporary()

    async def tar_stream(self) -> AsyncIterator[bytes]:
        """The workspace as GNU tar, for copy mode. Writes the baseline on the way. Raises WorkspaceError."""
        limits = self.spec.limits
        with write_baseline(self.baseline, self.base) as manifest:

            def record(entry: Packed) -> None:
                append_entry(manifest, entry)

            pack = TreePack(self.root, self.masks, limits.workspace_bytes, limits.workspace_inodes, record)
            async for batch in iterate_in_thread(iter(pack)):
                yield batch
        for path, reason in pack.skipped[:_NAMED_SKIPS]:
            self.notes.append(f"not copied into the box: {describe_path(path)}: {reason}")
        if len(pack.skipped) > _NAMED_SKIPS:
            self.notes.append(f"not copied into the box: {len(pack.skipped) - _NAMED_SKIPS} more")

    def discard(self) -> None:
        """Give back everything but the run directory: mounts, links, ids, locks. Idempotent."""
        with self.lock:
            self.cleanup.close()
            self.root = -1
