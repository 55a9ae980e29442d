"""The fake box says that it has no network, instead of pretending one."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.errors import ToolError
from corral.testing import FakeSandbox


async def test_a_fake_box_has_no_tunnel(tmp_path: Path) -> None:
    async with FakeSandbox(tmp_path) as box:
        for attempt in (box.open_tunnel(lambda stream: None), box.dial(8000)):
            with pytest.raises(ToolError) as refused:
                await attempt
            assert refused.value.code == "unsupported"
