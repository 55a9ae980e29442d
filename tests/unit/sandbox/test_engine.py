"""An engine that is not there, refuses, hangs or answers nonsense: one line in our words, in time."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.errors import EngineTimeout, EngineUnavailable, ImageError, SandboxError
from corral.sandbox.engine import Engine, ImageFacts, _explain, run_in_thread
from corral.sandbox.reach import Address
from corral.sandbox.remap import Remap

Answer = Callable[[str], tuple[int, str]]


class RawEngine:
    """A Unix socket that answers each HTTP request with what `answer` says for its path; None: never."""

    def __init__(self, path: Path) -> None:
        self.answer: Callable[[str], tuple[int, str] | None] = lambda path: None
        self.paths: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(64)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(connection)
            request = connection.recv(65536).decode()
            if not request:  # only a knock
                continue
            path = request.split(" ")[1]
            self.paths.append(path)
            answer = self.answer(path)
            if answer is not None:
                status, body = answer
                head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                connection.sendall(f"{head}Connection: close\r\n\r\n{body}".encode())

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)  # one that it has just accepted is closed too
        self._socket.close()
        for connection in self._open:
            connection.close()


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[RawEngine]:
    engine = RawEngine(tmp_path / "e.sock")
    yield engine
    engine.close()


def open_engine(tmp_path: Path) -> Engine:
    return Engine({"DOCKER_HOST": f"unix://{tmp_path}/e.sock"})


async def test_no_socket(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        await open_engine(tmp_path).inspect_image("x")
    assert "no container engine answers" in caught.value.message
    assert "DOCKER_HOST" in str(caught.value.hint)


async def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(tmp_path / "e.sock"))
    with pytest.raises(EngineUnavailable):
        await open_engine(tmp_path).inspect_image("x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use every socket")
async def test_no_permission(raw: RawEngine, tmp_path: Path) -> None:
    (tmp_path / "e.sock").chmod(0)
    with pytest.raises(EngineUnavailable) as caught:
        await open_engine(tmp_path).inspect_image("x")
    assert "docker group" in str(caught.value.hint)


def test_permission_is_told_with_its_hint() -> None:
    wrapped = OSError("Connection aborted.", PermissionError(13, "Permission denied"))
    error = _explain("start", wrapped, Address("unix:///run/x.sock"))
    assert isinstance(error, EngineUnavailable)
    assert "docker group" in str(error.hint)


async def test_an_engine_that_hangs_is_given_up_on(raw: RawEngine, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(EngineTimeout):
        await open_engine(tmp_path).call("answer", lambda client: client.ping(), 0.3)
    assert time.monotonic() - started < 2


async def test_a_hanging_call_never_holds_up_another(raw: RawEngine, tmp_path: Path) -> None:
    raw.answer = lambda path: None
    engine = open_engine(tmp_path)
    calls = [asyncio.ensure_future(engine.call("answer", lambda client: client.ping(), 0.5)) for _ in range(20)]
    assert await asyncio.wait_for(run_in_thread(lambda: 7, name="x"), 0.4) == 7
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {EngineTimeout}


async def test_missing_image(raw: RawEngine, tmp_path: Path) -> None:
    raw.answer = lambda path: (404, '{"message":"No such image: x"}')
    with pytest.raises(ImageError) as caught:
        await open_engine(tmp_path).inspect_image("x")
    assert caught.value.hint == "pull or build it, or leave --image out"
    with pytest.raises(ImageError) as caught:
        await open_engine(tmp_path).inspect_image("corral-sandbox")
    assert caught.value.hint == "build it with: corral image build"


async def test_what_is_no_name_of_an_image(raw: RawEngine, tmp_path: Path) -> None:
    raw.answer = lambda path: (400, '{"message":"a b: invalid reference format"}')
    with pytest.raises(ImageError) as caught:
        await open_engine(tmp_path).inspect_image("a b")
    assert caught.value.message == "'a b' is not the name of an image"


async def test_refusal_is_told_without_control_characters(raw: RawEngine, tmp_path: Path) -> None:
    raw.answer = lambda path: (500, '{"message":"broken \\u001b[2J"}')
    with pytest.raises(SandboxError) as caught:
        await open_engine(tmp_path).start_container("x")
    assert caught.value.message == "the engine refused to start the container: broken \\x1b[2J"


@pytest.mark.parametrize("body", ["", "no json", "[]"])
async def test_nonsense(raw: RawEngine, tmp_path: Path, body: str) -> None:
    raw.answer = lambda path: (200, body)
    with pytest.raises(SandboxError):
        await open_engine(tmp_path).inspect_image("x")


async def test_removing_what_is_gone_is_fine(raw: RawEngine, tmp_path: Path) -> None:
    raw.answer = lambda path: (404, '{"message":"No such container: x"}')
    assert await open_engine(tmp_path).remove_container("x") is False


async def test_an_engine_that_dropped_our_version_is_asked_for_its_own(raw: RawEngine, tmp_path: Path) -> None:
    def answer(path: str) -> tuple[int, str]:
        if path == "/version":
            return 200, '{"ApiVersion":"1.52","MinAPIVersion":"1.44"}'
        if path.startswith("/v1.41/"):
            return 400, '{"message":"client version 1.41 is too old. Minimum supported API version is 1.44"}'
        place = '"GraphDriver":{"Data":{"UpperDir":"/d/overlay2/1/diff"}}'
        return 200, '{"Id":"sha256:1","Config":{"Env":["A=1"]},' + place + "}"

    raw.answer = answer
    facts = await open_engine(tmp_path).inspect_image("x")
    assert (facts.id, facts.env) == ("sha256:1", ("A=1",))
    assert raw.paths == ["/v1.41/images/x/json", "/version", "/v1.52/images/x/json"]


@pytest.mark.parametrize(
    ("place", "asks", "remap"),
    [
        ({"UpperDir": "/var/lib/docker/overlay2/1/diff"}, False, None),
        ({"UpperDir": "/d/100000.100000/overlay2/1/diff"}, True, Remap(100000, 100000)),
        (None, True, Remap(100000, 100000)),
    ],
)
async def test_an_engine_is_asked_for_its_ids_only_where_the_image_leaves_it_open(
    raw: RawEngine, tmp_path: Path, place: object, asks: bool, remap: Remap | None
) -> None:
    info = {"SecurityOptions": ["name=userns"], "DockerRootDir": "/d/100000.100000", "KernelVersion": "6.9.0"}
    image = {"Id": "sha256:1", "Os": "linux", "Architecture": "amd64", "GraphDriver": {"Data": place}}
    raw.answer = lambda path: (200, json.dumps(info if path.endswith("/info") else image))
    facts = await open_engine(tmp_path).inspect_image("x")
    assert facts == ImageFacts("sha256:1", remap=remap, platform="linux/amd64")
    assert raw.paths == ["/v1.41/images/x/json", *(["/v1.41/info"] if asks else [])]


async def test_an_error_of_a_thread_reaches_the_task() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_in_thread(fail, name="x")
