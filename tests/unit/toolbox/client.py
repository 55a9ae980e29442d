"""A small synchronous host for the real toolbox, run as the first process of a pid namespace, without Docker.

The toolbox gets what the container gives it: four capabilities, no-new-privileges, its own /run, /home and /tmp.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corral_protocol.framing import CHUNK_TYPE, FrameDecoder, encode_chunk, encode_control, parse_chunk
from corral_protocol.message import INITIAL_CREDIT

HANG_S = 60.0
"""Far more than any answer takes, also beside the fork bombs of other tests: only a hang is waited for so long."""
TOOLBOX = Path(__file__).parents[3] / "toolbox"
UID, GID = 1878123456, 1878123457
WORKSPACE = "/run/workspace"
PYTHON = "/usr/bin/python3"
_START = f"""
mount -t tmpfs none /run
mkdir -p /run/toolbox {WORKSPACE}
chown {UID}:{GID} {WORKSPACE}
mount --bind "$1" /run/toolbox
mount -t tmpfs -o mode=755 none /home
mount -t tmpfs -o mode=1777 none /tmp
exec setpriv --bounding-set -all,+setuid,+setgid,+setpcap,+kill --inh-caps -all --no-new-privs \
    {PYTHON} -I -S /run/toolbox
"""
LIMIT_PIDS = """
group=/sys/fs/cgroup/pids/corral-test-{name}
mkdir $group
echo {count} > $group/pids.max
echo $$ > $group/cgroup.procs
mount --bind $group /sys/fs/cgroup/pids
"""
"""A prelude: the box's own pids controller (cgroup v1), seen where a container sees it."""
COUNT_ZOMBIES = """
while pgrep -f '^sleep 0' >/dev/null; do sleep 0.02; done
for _ in $(seq 50); do
    zombies=$(grep -l '^State:.*Z' /proc/[0-9]*/status 2>/dev/null | wc -l)
    [ $zombies = 0 ] && break
    sleep 0.02
done
echo $zombies
"""
"""How many are still there a second after the last `sleep 0...` has ended; tells as soon as there are none."""
Message = dict[str, Any]


def explain_missing() -> str:
    """Why the toolbox cannot run here; "" when it can."""
    if os.geteuid() != 0:
        return "the toolbox runs as root in a pid namespace; these tests need root"
    for program in ("unshare", "setpriv", "bash", PYTHON):
        if shutil.which(program) is None:
            return f"{program} is missing"
    probe = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs", "none", "/run"], capture_output=True
    )
    return "" if probe.returncode == 0 else f"no namespaces here: {probe.stderr.decode().strip()}"


class BoxEnded(Exception):
    """The toolbox closed its side."""


class Client:
    """One toolbox process and the host's end of its channel."""

    def __init__(self, *, command: list[str] | None = None, prelude: str = "") -> None:
        start = f"set -e\n{prelude}\n{_START}"
        self.process = subprocess.Popen(
            command
            or [
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *("sh", "-c", start, "sh", str(TOOLBOX)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._in = self.process.stdin.fileno()
        self._out = self.process.stdout.fileno()
        self._decoder = FrameDecoder()
        self._next_id = 1
        self.next_stream = 1
        self.answers: dict[int, Message] = {}
        self.notices: list[Message] = []
        self.streams: dict[int, bytearray] = {}
        self.closed: dict[int, Message] = {}
        self._outputs: dict[int, Message] = {}  # of an exec: which streams its answer tells of
        self.credit: dict[int, int] = {}
        self.is_giving_credit = True

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> str:
        """End the box; returns its crash log."""
        process = self.process
        assert process.stdin and process.stdout and process.stderr
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        log = process.stderr.read().decode(errors="replace") if not process.stderr.closed else ""
        process.stderr.close()
        return log

    @staticmethod
    def children(pid: int) -> list[int]:
        """Of a process, seen from outside the box."""
        found = Path(f"/proc/{pid}/task").glob("*/children")  # each thread has those it made
        return [int(child) for path in found for child in path.read_text().split()]

    @staticmethod
    def command_line(pid: int) -> bytes:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")

    # Sending.

    def send(self, frame: bytes) -> None:
        while frame:
            frame = frame[os.write(self._in, frame) :]

    def request(self, method: str, params: Message | None = None) -> int:
        number = self._next_id
        self._next_id += 1
        if params and method == "exec":
            self._outputs[number] = {name: params[name] for name in ("stdout", "stderr") if params.get(name)}
        self.send(encode_control({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}))
        return number

    def notify(self, method: str, params: Message) -> None:
        self.send(encode_control({"jsonrpc": "2.0", "method": method, "params": params}))

    def send_chunk(self, stream: int, data: bytes) -> None:
        self.send(encode_chunk(stream, data))

    def open_stream(self) -> int:
        number = self.next_stream
        self.next_stream += 1
        self.streams[number] = bytearray()
        self.credit[number] = INITIAL_CREDIT
        return number

    # Receiving.

    def poll(self, timeout_s: float) -> bool:
        """Take what has come within the time; False when nothing has."""
        if not select.select([self._out], [], [], timeout_s)[0]:
            return False
        data = os.read(self._out, 1 << 20)
        if not data:
            raise BoxEnded
        for payload in self._decoder.feed(data):
            self._take(payload)
        return True

    def _take(self, payload: bytes) -> None:
        if payload[0] == CHUNK_TYPE:
            stream, data = parse_chunk(payload)
            self.streams.setdefault(stream, bytearray()).extend(data)
            if self.is_giving_credit:
                self.notify("stream.credit", {"stream": stream, "bytes": len(data)})
            return
        message = json.loads(payload)
        if "id" in message:
            assert message["id"] not in self.answers
            self.answers[message["id"]] = message
            for name, stream in self._outputs.pop(message["id"], {}).items():
                if "result" in message and (capture := message["result"][name])["closed"]:
                    self._close(stream, capture["streamed_bytes"])
        elif message["method"] == "stream.close":
            self._close(**message["params"])
        elif message["method"] == "stream.credit":
            self.credit[message["params"]["stream"]] += message["params"]["bytes"]
        else:
            self.notices.append(message)

    def _close(self, stream: int, total: int, error: str = "") -> None:
        self.closed[stream] = {"stream": stream, "total": total, "error": error}

    def wait(self, number: int, timeout_s: float = HANG_S) -> Message:
        """The answer to a request."""
        self.wait_until(lambda: number in self.answers, timeout_s)
        return self.answers.pop(number)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = HANG_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            left_s = deadline - time.monotonic()
            assert left_s > 0, "nothing came in time"
            self.poll(left_s)

    def wait_true(self, condition: Callable[[], bool], timeout_s: float = HANG_S) -> None:
        """Ask again and again, for what no message tells."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "it did not become true in time"
            time.sleep(0.02)

    def wait_closed(self, stream: int, timeout_s: float = HANG_S) -> bytes:
        """Everything of a stream, once its end has come."""
        self.wait_until(lambda: stream in self.closed, timeout_s)
        # An answer overtakes data.
        self.wait_until(lambda: self.closed[stream]["total"] <= len(self.streams[stream]), timeout_s)
        assert self.closed[stream]["total"] == len(self.streams[stream])
        return bytes(self.streams[stream])

    def call(self, method: str, params: Message | None = None, timeout_s: float = HANG_S) -> Message:
        """A request's result."""
        answer = self.wait(self.request(method, params), timeout_s)
        assert "result" in answer, answer
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def fail(self, method: str, params: Message | None = None) -> Message:
        """A request's error data: {"code", "details"} and the message."""
        answer = self.wait(self.request(method, params))
        assert answer["error"]["code"] == -32000
        return {"message": answer["error"]["message"], **answer["error"]["data"]}

    def hello(self, **more: Any) -> Message:
        return self.call("hello", {"protocol": 1, "uid": UID, "gid": GID, "workspace": WORKSPACE, **more})

    def start_shell(self, command: str, **more: Any) -> int:
        return self.request("exec", {"argv": [command], "shell": True, **more})

    def shell(self, command: str, *, wait_s: float = HANG_S, **more: Any) -> Done:
        return Done(self.wait(self.start_shell(command, **more), wait_s)["result"])

    def exec(self, *argv: str, **more: Any) -> Done:
        return Done(self.call("exec", {"argv": list(argv), **more}))


class Done:
    """An ExecResult with its outputs decoded."""

    def __init__(self, raw: Message) -> None:
        self.raw = raw
        self.status: str = raw["status"]
        self.exit_code: int = raw["exit_code"]
        self.signal: int = raw["signal"]
        self.cwd: str = raw["cwd"]
        self.notices: list[str] = raw["notices"]
        self.background: int = raw["background"]
        self.stdout = _join(raw["stdout"])
        self.stderr = _join(raw["stderr"])

    def __repr__(self) -> str:
        return f"Done({self.raw!r})"

    @property
    def outcome(self) -> tuple[str, int, bytes, bytes]:
        return self.status, self.exit_code, self.stdout, self.stderr


def _join(capture: Message) -> bytes:
    return base64.b64decode(capture["head_b64"]) + base64.b64decode(capture["tail_b64"])


def main() -> None:
    """By hand: `python -m tests.unit.toolbox.client 'command line'`."""
    with Client() as client:
        print(json.dumps(client.hello(), indent=1)[:600])
        for command in sys.argv[1:]:
            print(client.shell(command))
        print(client.call("stats"))
        print(client.close())


if __name__ == "__main__":
    main()
