"""Our own standard streams: nobody who stops reading or writing stops the rest."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from corral.cli.stdio import Output, read_stdin


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            pass


async def beats(count: int = 20) -> int:
    """How often the loop came round: none of it, were something blocking."""
    for _ in range(count):
        await asyncio.sleep(0.001)
    return count


async def test_input_comes_in_pieces_and_ends(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.write(write, b"\0first\xff")
    stream = read_stdin(read)
    assert await anext(stream) == b"\0first\xff"
    os.write(write, b"second")
    assert await anext(stream) == b"second"
    os.close(write)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_closed_input_is_at_its_end(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    assert [piece async for piece in read_stdin(pipe[0])] == []


async def test_input_that_never_comes_blocks_nobody(pipe: tuple[int, int]) -> None:
    waiting = asyncio.ensure_future(anext(read_stdin(pipe[0])))
    assert await beats() == 20 and not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    os.write(pipe[1], b"x")  # lets the thread go


async def test_at_most_one_piece_is_read_ahead(pipe: tuple[int, int]) -> None:
    read, write = pipe
    stream = read_stdin(read)
    os.write(write, b"a" * (64 << 10))
    assert len(await anext(stream)) == 64 << 10
    os.write(write, b"b" * (64 << 10))
    await asyncio.sleep(0.05)
    os.set_blocking(write, False)
    with pytest.raises(BlockingIOError):
        os.write(write, b"c" * (64 << 10))  # nobody has taken the second piece out of the pipe
    await stream.aclose()  # type: ignore[attr-defined]


async def test_output_is_written_in_order_and_whole(pipe: tuple[int, int]) -> None:
    read, write = pipe
    gone = asyncio.Event()
    output = Output(write, gone)
    pieces = [bytes([number]) * 50_000 for number in range(10)]
    taken = asyncio.ensure_future(asyncio.to_thread(read_all, read))
    for piece in pieces:
        done = output.sink(memoryview(piece))
        assert done is not None
        await done
    os.close(write)
    assert await taken == b"".join(pieces) and not gone.is_set()


def read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    return b"".join(parts)


async def test_a_reader_that_stops_holds_back_its_writer_only(pipe: tuple[int, int]) -> None:
    read, write = pipe
    output = Output(write, asyncio.Event())
    stuck = output.sink(memoryview(b"x" * (1 << 20)))
    assert isinstance(stuck, asyncio.Future)
    assert await beats() == 20 and not stuck.done()
    os.close(read)
    await stuck
    assert output.broken


async def test_a_reader_that_went_away_is_told_and_costs_nothing_more(pipe: tuple[int, int]) -> None:
    read, write = pipe
    gone = asyncio.Event()
    output = Output(write, gone)
    os.close(read)
    done = output.sink(memoryview(b"x"))
    assert done is not None
    await done
    await asyncio.wait_for(gone.wait(), 1)
    assert output.sink(memoryview(b"y")) is None


async def test_the_descriptor_keeps_its_flags(pipe: tuple[int, int]) -> None:
    """It is the shell's, too: one that is made non-blocking breaks other programs."""
    read, write = pipe
    output = Output(write, asyncio.Event(), lambda data: bytes(data).upper())
    done = output.sink(memoryview(b"abc"))
    assert done is not None
    await done
    assert os.get_blocking(write) and os.read(read, 10) == b"ABC"
