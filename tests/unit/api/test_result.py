from __future__ import annotations

import asyncio
import base64

from corral.api.result import Collector, build_result, show_capture
from corral_protocol.message import Capture, ExecResult, ExecStatus


def capture(head: bytes, tail: bytes = b"", total: int | None = None) -> Capture:
    whole = len(head) + len(tail) if total is None else total
    return Capture(base64.b64encode(head).decode(), base64.b64encode(tail).decode(), whole, 0)


def ended(stdout: Capture, stderr: Capture, **more: object) -> ExecResult:
    given = {"status": ExecStatus.EXITED, "exit_code": 0, "signal": 0, "cwd": "/workspace", "duration_s": 0.5} | more
    return ExecResult(stdout=stdout, stderr=stderr, **given)  # type: ignore[arg-type]


def test_a_collector_keeps_the_first_bytes_and_passes_all_on() -> None:
    seen = bytearray()
    collector = Collector(4, seen.extend)
    for piece in (b"abc", b"def", b"gh"):
        assert collector.receive(memoryview(piece)) is None
    assert (bytes(collector.kept), bytes(seen)) == (b"abcd", b"abcdefgh")


async def test_a_slow_sink_holds_the_sender_back() -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert Collector(0, lambda data: done).receive(memoryview(b"x")) is done


def test_a_result_says_what_is_missing() -> None:
    out, err = Collector(2, None), Collector(9, None)
    out.receive(memoryview(b"abc"))
    err.receive(memoryview(b"\xff!"))
    result = build_result(ended(capture(b"abc"), capture(b"\xff!"), exit_code=4), out, err)
    assert (result.stdout, result.stdout_bytes, result.stderr, result.is_complete) == (b"ab", 3, b"\xff!", False)
    assert (result.exit_code, result.ok, result.cause, result.signal) == (4, False, "", None)


def test_a_timeout_and_a_signal_are_told_apart() -> None:
    nothing = Collector(0, None)
    empty = capture(b"")
    late = build_result(ended(empty, empty, status=ExecStatus.TIMEOUT, signal=9), nothing, nothing)
    killed = build_result(ended(empty, empty, status=ExecStatus.SIGNALED, signal=11, oom_kills=1), nothing, nothing)
    assert (late.exit_code, late.timed_out, late.cause) == (124, True, "timeout")
    assert (killed.exit_code, killed.signal, killed.timed_out, killed.cause) == (139, 11, False, "oom")


def test_the_record_gets_head_and_tail() -> None:
    result = ended(capture(b"head", b"tail", 100), capture(b"oops"))
    assert show_capture(result) == "head\n[… 92 bytes left out …]\ntail\n[stderr]\noops"
    assert show_capture(ended(capture(b""), capture(b""))) == ""
