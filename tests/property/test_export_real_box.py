"""Random trees, random edits by the untrusted user of a real box: the exported patch plus the list is the change.

`git apply` on a clean copy and our own apply both give the box's tree as SPEC E1 defines it, in both workspace modes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import docker
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.conftest import SEED
from tests.contract.boxes import make_spec
from tests.property.overlay_box import Operation, Seen, can_mount, make_tree
from tests.property.real_box import describe_box, edit_in_box
from tests.property.test_patch_round_trip import (
    IGNORE,
    applied,
    as_git_sees,
    check_list,
    content,
    git_apply,
    operations,
    paths,
)

from corral.patch import apply_patch
from corral.patch.export import Exporter
from corral.sandbox.docker import DockerSandbox
from corral.sandbox.spec import WorkspaceMode
from corral.schema.patch import Patch

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not can_mount(), reason="makes trees of any owner and reads them whole: needs root"),
]

BOUNDED = settings(phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck))
"""No shrinking: every example is a box, and a failing one would cost minutes."""
HARD_MODES = ["0", "100", "200", "400", "500", "700", "1777"]
LEFTOVERS = [".corral-tmp-0123456789abcdef", "a/.corral-tmp-old-0123456789abcdef"]
in_box = st.lists(
    st.one_of(
        operations,
        operations,
        operations,
        st.tuples(st.just("chmod"), paths, st.sampled_from(HARD_MODES)),
        st.tuples(st.just("write"), st.sampled_from(LEFTOVERS), content),
    ),
    min_size=1,
    max_size=40,
)
originals = st.lists(operations, max_size=40)


@pytest.mark.parametrize("mode", [WorkspaceMode.OVERLAY, WorkspaceMode.COPY])
def test_patch_and_list_are_what_the_box_changed(
    mode: WorkspaceMode, sandbox_image: str, docker_engine: docker.DockerClient, rounds: Callable[[int], int]
) -> None:
    @seed(SEED)
    @settings(BOUNDED, max_examples=rounds(15))
    @given(original=originals, ignore=st.sampled_from(IGNORE), edits=in_box)
    def holds(original: list[Operation], ignore: str, edits: list[Operation]) -> None:
        with tempfile.TemporaryDirectory() as name:
            base = Path(name)
            plain = [one for one in original if mode is WorkspaceMode.OVERLAY or _can_be_copied(one)]
            before = make_tree(base / "lower", [*plain, ("write", ".gitignore", ignore)])
            run_dir, patch, after = asyncio.run(change(base, mode, sandbox_image, docker_engine, edits))
            check(base, run_dir / "patch.diff", patch, before, after)

    holds()


async def change(
    base: Path, mode: WorkspaceMode, image: str, client: docker.DockerClient, edits: list[Operation]
) -> tuple[Path, Patch | None, dict[bytes, Seen]]:
    """One run: edits, end of all processes, export. Gives its directory, the patch and the tree it should stand for."""
    spec = make_spec(base / "lower", base, image, mode=mode, mask=())
    async with DockerSandbox(spec) as box:
        assert box.info.mode is mode
        await edit_in_box(box, edits)
        await box.kill_all()
        after = await asyncio.to_thread(describe_box, client, box)
        patch = await Exporter(spec.workspace, spec.run_dir / "patch.diff").export(box)
    return spec.run_dir, patch, after


def check(base: Path, file: Path, patch: Patch | None, before: dict[bytes, Seen], after: dict[bytes, Seen]) -> None:
    lower = base / "lower"
    if patch is None:
        assert after == before
        return
    data = file.read_bytes()
    by_git = applied(base, lower, "by-git", lambda tree: git_apply(tree, file))
    by_us = applied(base, lower, "by-us", lambda tree: apply_all(data, tree))
    assert as_git_sees(by_us) == as_git_sees(by_git)
    check_list(patch, before, after, by_us)


def apply_all(data: bytes, tree: Path) -> None:
    if data:
        apply_patch(data, tree, is_approved=True, allow_leaving_links=True)


def _can_be_copied(operation: Operation) -> bool:
    """A copy holds no FIFO and no set-id bits, and cannot tell what changed in directories that were closed before."""
    return operation[0] != "fifo" and (operation[0] != "chmod" or operation[2] == "755")
