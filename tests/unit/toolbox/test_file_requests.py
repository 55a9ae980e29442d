"""File requests as the channel sees them: whose rights, whose time, whose streams. What they do is tested elsewhere."""

from __future__ import annotations

import base64
import os
import signal
import time

from tests.unit.toolbox.client import GID, UID, WORKSPACE, Client


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_writes_and_reads_as_the_untrusted_user(box: Client) -> None:
    changed = box.call("file.write", {"path": "d/f", "content_b64": _encode(b"one\ntwo\n")})
    assert (changed["path"], changed["action"], changed["size"]) == (f"{WORKSPACE}/d/f", "created", 8)
    content = box.call("file.read", {"path": "d/f"})
    assert (content["kind"], content["size"], content["last_line"]) == ("text", 8, 2)
    assert box.shell("stat -c '%u:%g %a' d d/f").stdout.decode() == f"{UID}:{GID} 755\n{UID}:{GID} 644\n"


def test_a_file_the_user_may_not_read_is_not_read(box: Client) -> None:
    """The worker's real ids are root's; only its file-system ids count."""
    box.shell("ln -s /etc/shadow link; touch own; chmod 0 own")
    assert box.fail("file.read", {"path": "own"})["code"] == "permission_denied"
    assert box.fail("file.read", {"path": "link"})["code"] in {"permission_denied", "outside_workspace"}
    assert "code" in box.fail("file.read", {"path": "/run/corral/none"})


def test_errors_travel_with_their_code(box: Client) -> None:
    assert box.fail("file.read", {"path": "missing"})["code"] == "not_found"
    assert box.fail("file.read", {"path": 7})["code"] == "invalid_argument"
    assert box.fail("file.fetch", {"path": "x", "stream": 0})["code"] == "invalid_argument"
    box.call("ping")


def test_requests_at_once_all_get_their_answer(box: Client) -> None:
    for i in range(20):
        box.call("file.write", {"path": f"f{i}", "content_b64": _encode(b"x" * i)})
    asked = {i: box.request("file.read", {"path": f"f{i}"}) for i in range(20)}
    assert {i: box.wait(number)["result"]["size"] for i, number in asked.items()} == {i: i for i in range(20)}


def test_fetches_large_files_under_credit(box: Client) -> None:
    data = os.urandom(1 << 20) * 8
    stream = box.open_stream()
    stored = box.request("file.store", {"path": "big", "stream": stream, "size": len(data)})
    for start in range(0, len(data), 64 << 10):
        box.wait_until(lambda: box.credit[stream] >= 64 << 10)
        box.credit[stream] -= 64 << 10
        box.send_chunk(stream, data[start : start + (64 << 10)])
    box.notify("stream.close", {"stream": stream, "total": len(data)})
    assert box.wait(stored)["result"]["size"] == len(data)
    stream = box.open_stream()
    reply = box.call("file.fetch", {"path": "big", "stream": stream})
    assert (reply["size"], reply["sent"]) == (len(data), len(data))
    assert box.wait_closed(stream) == data


def test_a_broken_off_store_leaves_the_old_bytes(box: Client) -> None:
    box.call("file.write", {"path": "f", "content_b64": _encode(b"old")})
    stream = box.open_stream()
    stored = box.request("file.store", {"path": "f", "stream": stream, "size": 100})
    box.send_chunk(stream, b"new")
    box.notify("stream.close", {"stream": stream, "total": 3, "error": "cancelled"})
    assert "error" in box.wait(stored)
    assert box.shell("cat f; ls -A").stdout == b"oldf\n"


def test_a_transfer_can_be_cancelled(box: Client) -> None:
    box.is_giving_credit = False
    box.shell("head -c 50000000 /dev/zero > big")
    stream = box.open_stream()
    fetching = box.request("file.fetch", {"path": "big", "stream": stream})
    box.wait_until(lambda: len(box.streams[stream]) >= 256 << 10)
    box.call("exec.cancel", {"id": fetching})
    assert box.wait(fetching)["error"]["data"]["code"] == "cancelled"
    box.wait_until(lambda: stream in box.closed)
    assert box.closed[stream]["error"] == "cancelled"
    box.is_giving_credit = True
    assert box.call("file.read", {"path": "big", "offset": 0, "limit": 10})["size"] == 50_000_000


def test_waiting_transfers_do_not_hold_small_requests(box: Client) -> None:
    box.is_giving_credit = False
    box.shell("head -c 5000000 /dev/zero > big; echo small > f")
    for _ in range(3):
        box.request("file.fetch", {"path": "big", "stream": box.open_stream()})
        started = time.monotonic()
        assert box.call("file.read", {"path": "f"})["size"] == 6
        assert time.monotonic() - started < 5.0


def test_a_killed_worker_is_an_error_and_is_replaced(box: Client) -> None:
    box.is_giving_credit = False
    box.shell("head -c 5000000 /dev/zero > big")
    stream = box.open_stream()
    fetching = box.request("file.fetch", {"path": "big", "stream": stream})
    box.wait_until(lambda: len(box.streams[stream]) > 0)
    # Only the kernel or the host's root can do this; here we are that root.
    for pid in box.children(box.children(box.process.pid)[0]):
        if _is_worker(pid):
            os.kill(pid, signal.SIGKILL)
    assert box.wait(fetching)["error"]["data"]["code"] == "internal"
    read = {"path": "big", "offset": 0, "limit": 1}
    # A request that a dying worker may have taken is not done again behind the host's back; the next one works.
    box.wait_true(lambda: "result" in box.wait(box.request("file.read", read)))


def test_a_stuck_worker_is_given_up_and_replaced(box: Client) -> None:
    box.call("file.list", {"path": ""})
    worker = next(pid for pid in box.children(box.children(box.process.pid)[0]) if _is_worker(pid))
    os.kill(worker, signal.SIGSTOP)
    started = time.monotonic()
    failure = box.fail("file.list", {"path": ""})
    assert (failure["code"], failure["message"]) == ("timeout", "no answer within 5 s")
    assert 4.5 < time.monotonic() - started < 7
    assert box.call("file.list", {"path": ""})["total"] == 0


def _is_worker(pid: int) -> bool:
    """Root's real id with the untrusted user's file-system id."""
    with open(f"/proc/{pid}/status") as file:
        real, _, _, of_files = next(line for line in file if line.startswith("Uid:")).split()[1:]
    return (real, of_files) == ("0", str(UID))


def test_file_workers_are_out_of_the_users_reach(box: Client) -> None:
    box.call("file.list", {"path": ""})
    script = "for p in /proc/[0-9]*; do kill -9 ${p#/proc/} 2>/dev/null && echo $p; done; true"
    box.shell(f"echo '{script}' > s")
    assert box.shell("bash s | grep -v /proc/$$").exit_code in {0, 1, 137}
    box.is_giving_credit = True
    assert box.call("file.list", {"path": ""})["total"] == 1
