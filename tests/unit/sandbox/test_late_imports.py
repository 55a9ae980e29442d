"""docker-py is loaded late, and by several threads at once: none may lock another out of it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
from corral.errors import EngineUnavailable
from corral.sandbox.engine import Engine
from corral.sandbox.reach import find_address, open_api

failures, start = [], threading.Barrier(8)
environment = {"DOCKER_HOST": "unix:///none.sock"}

def ask():
    start.wait()
    try:
        Engine(environment).ask("answer", lambda client: client.ping())
    except EngineUnavailable:
        pass
    except BaseException as error:
        failures.append(repr(error))

def connect():
    start.wait()
    try:
        open_api(find_address(environment), timeout_s=1).close()
    except BaseException as error:
        failures.append(repr(error))

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=target) for target in (ask, connect) * 4]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(failures)
"""


def test_many_threads_load_the_engines_library_at_once() -> None:
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"
