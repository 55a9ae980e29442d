"""A box that waits for its greeting, as those of a pool do, ends when its host falls silent without closing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from corral_toolbox.channel.outbox import Outbox
from corral_toolbox.loop import Loop
from corral_toolbox.server import EXIT_LEASE, FIRST_LEASE_S, End, Server


@pytest.fixture
def server() -> Iterator[Server]:
    reader, writer = os.pipe()
    loop = Loop(Outbox(writer))
    yield Server(loop, 1024)
    loop._epoll.close()
    os.close(reader)
    os.close(writer)


def test_ends_when_nothing_was_heard_before_the_greeting(server: Server) -> None:
    server.watch_lease()  # heard a moment ago: nothing happens
    server._heard_at -= FIRST_LEASE_S
    with pytest.raises(End, match="nothing heard from the host for 60 s") as ended:
        server.watch_lease()
    assert ended.value.status == EXIT_LEASE
