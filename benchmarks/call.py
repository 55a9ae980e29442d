"""A warm call: one more command or file operation in a box that runs."""

from __future__ import annotations

import subprocess

import docker

from benchmarks.place import open_client, plain_container
from benchmarks.run import Options, alternate, main, timed, timed_blocking
from benchmarks.table import Group, compare, state
from corral.sandbox.channel import run_call
from corral_protocol.message import Method, Pong

TEXT = ("x" * 99 + "\n") * 100
PAUSE_S = 0.05
NOTE = """\
Of three calls in a row the last counts, on all sides; then there is a pause, for what a call may leave to be done, and
the next contender has its three. `shell` is a bash of the box, as the untrusted user, under the seccomp filter,
with its own supervisor, outputs, counters and last directory told. Beside it docker-py's `exec_run` in a plain
container, and a shell of the host."""


async def measure(options: Options) -> Group:
    place = options.place
    workspace = place.make_tree("small")
    (workspace / "ten.txt").write_text(TEXT)
    with open_client() as client, plain_container(client, place.image) as plain:
        engine = docker.DockerClient(version="1.41")
        container = engine.containers.get(plain)
        async with place.box(workspace) as (box, _):
            found = await alternate(
                options.rounds(200, 40),
                {
                    "bash": timed_blocking(lambda: subprocess.run(["bash", "-c", "true"], check=True)),
                    "shell": timed(lambda: box.shell("true")),
                    "sh": timed_blocking(lambda: subprocess.run(["sh", "-c", "true"], check=True)),
                    "exec": timed(lambda: box.exec(["/bin/true"])),
                    "read": timed(lambda: box.read_file("ten.txt")),
                    "write": timed(lambda: box.write_file("new.txt", TEXT.encode())),
                    "ping": timed(lambda: run_call(box._channel, Method.PING, None, Pong)),
                    "exec_run": timed_blocking(lambda: container.exec_run(["true"])),
                },
                pause_s=PAUSE_S,
                warm=2,
            )
        engine.close()
    docker_name = "docker-py exec_run"
    rows = [
        compare("`shell true`", found["shell"], docker_name, found["exec_run"], limit=1 / 15, aim=1 / 20),
        compare("`shell true`", found["shell"], "`sh -c true` on the host", found["sh"], limit=4, aim=3),
        compare("read 10 KB", found["read"], docker_name, found["exec_run"], limit=1 / 30),
        compare("write 10 KB", found["write"], docker_name, found["exec_run"], limit=1 / 30),
        state("of these: a message to the box and back, through the engine", found["ping"]),
        state("`exec /bin/true`, without a shell", found["exec"]),
        state("`bash -c true` on the host", found["bash"]),
    ]
    return Group("call", "A warm call", NOTE, rows)


if __name__ == "__main__":
    main(measure)
