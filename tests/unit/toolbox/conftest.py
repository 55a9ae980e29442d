"""A started toolbox per test, or a printed reason why there can be none."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.toolbox.client import LIMIT_PIDS, Client, explain_missing

_reason = functools.cache(explain_missing)


@pytest.fixture
def silent_box() -> Iterator[Client]:
    """A toolbox to which nothing was said yet."""
    if _reason():
        pytest.skip(_reason())
    with Client() as client:
        yield client


@pytest.fixture
def box(silent_box: Client) -> Client:
    """A toolbox after its handshake."""
    silent_box.hello()
    return silent_box


@pytest.fixture
def small_box() -> Iterator[Client]:
    """A toolbox in a cgroup of at most 260 processes."""
    if _reason():
        pytest.skip(_reason())
    if not Path("/sys/fs/cgroup/pids/cgroup.procs").exists() or not os.access("/sys/fs/cgroup/pids", os.W_OK):
        pytest.skip("no writable pids controller of cgroup v1 here")
    name = uuid.uuid4().hex
    try:
        with Client(prelude=LIMIT_PIDS.format(name=name, count=260)) as client:
            client.hello()
            yield client
    finally:
        Path(f"/sys/fs/cgroup/pids/corral-test-{name}").rmdir()
