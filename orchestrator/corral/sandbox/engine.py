"""The door to the container engine: one client per call, our own time limit on each, errors in our words.

docker-py blocks, and some of its calls hang for minutes. So each call runs in a daemon thread of its own (an executor's
threads are joined at exit, and few) and is given up on after its limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from corral.errors import EngineTimeout, EngineUnavailable, ImageError, SandboxError
from corral.sandbox.reach import (
    API_VERSION,
    USE_DOCKER,
    Address,
    TlsStream,
    explain,
    find_address,
    open_api,
    open_tls_stream,
)
from corral.sandbox.remap import Remap, find_remap, rules_out_remap
from corral.schema.visible import visible

if TYPE_CHECKING:
    from docker import APIClient

QUICK_S = 15.0
"""Questions: inspect, list, attach."""
CHANGE_S = 60.0
"""Create, start, remove: a busy engine takes its time."""

_IS_PODMAN = "opening seccomp profile failed"
_WANTS_TLS = "HTTP request to an HTTPS server"

T = TypeVar("T")
Config = Mapping[str, Any]


@dataclass(frozen=True)
class ImageFacts:
    """What a container inherits from its image, and must not do so silently."""

    id: str
    env: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    remap: Remap | None = None
    """Of the engine that has it."""
    platform: str = ""
    """`linux/amd64`, `linux/arm64`."""


class ObjectGone(SandboxError):
    """The engine does not know the container or volume (any more). Never leaves this room."""

    code = "engine_object_gone"


class NameTaken(SandboxError):
    """Another container has the name. Never leaves this room."""

    code = "engine_name_taken"


class Engine:
    """The engine of the environment (DOCKER_HOST and its companions, else Docker's context). Holds no connection."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        self._version = API_VERSION

    @cached_property
    def address(self) -> Address:
        """Raises EngineUnavailable for a Docker context that is broken."""
        return find_address(self._environment)

    @property
    def is_local(self) -> bool:
        """The engine most likely runs on this machine. Only the box's own report proves it."""
        return self.address.is_local

    def open_client(self, limit_s: float | None) -> APIClient:
        """A fresh client; close it."""
        return open_api(self.address, timeout_s=limit_s, version=self._version)

    def ask(self, what: str, action: Callable[[APIClient], T], limit_s: float = QUICK_S) -> T:
        """Run one blocking call. Raises EngineUnavailable, EngineTimeout, ObjectGone, SandboxError."""
        # The package first: threads that ask for parts of it in another order lock each other out of both.
        import docker  # noqa: F401  # late: start-up time
        from docker.errors import APIError, DockerException
        from requests.exceptions import RequestException
        from urllib3.exceptions import HTTPError

        try:
            try:
                return self._ask_once(action, limit_s)
            except APIError as error:
                if self._version == "auto" or "client version" not in str(error.explanation):
                    raise
                self._version = "auto"  # an engine that has dropped our version says so before it does anything
                return self._ask_once(action, limit_s)
        except (DockerException, RequestException, HTTPError, OSError) as error:
            raise _explain(what, error, self.address) from error

    def _ask_once(self, action: Callable[[APIClient], T], limit_s: float) -> T:
        self._knock(limit_s)
        with contextlib.closing(self.open_client(limit_s)) as client:
            return action(client)

    def _knock(self, limit_s: float) -> None:
        """Connect once by ourselves: the system's plain error, where docker-py wraps it and leaks the socket."""
        if self.is_local:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(limit_s)
                probe.connect(self.address.url.partition("://")[2])

    async def call(self, what: str, action: Callable[[APIClient], T], limit_s: float = QUICK_S) -> T:
        """ask() in a thread of its own. Raises EngineTimeout at the limit whatever the thread does."""
        future = run_in_thread(lambda: self.ask(what, action, limit_s), name=f"corral-{what}")
        try:
            async with asyncio.timeout(limit_s + 1):
                return await future
        except asyncio.CancelledError:
            future.add_done_callback(_drop_unfetched)
            raise
        except TimeoutError:
            future.add_done_callback(_drop_unfetched)
            raise EngineTimeout(
                f"the engine did not {what} within {limit_s:g} s", hint="is the engine overloaded? see its log"
            ) from None

    async def inspect_image(self, name: str) -> ImageFacts:
        """Raises ImageError when the engine has no such image."""
        try:
            raw = await self.call("inspect the image", lambda client: client.inspect_image(name))  # type: ignore[no-untyped-call]
        except ObjectGone:
            own = "build it with: corral image build"
            hint = own if name.startswith("corral-sandbox") else "pull or build it, or leave --image out"
            raise ImageError(f"the engine has no image {name!r}", hint=hint) from None
        except SandboxError as error:
            if "invalid reference format" not in error.message:
                raise
            raise ImageError(f"{name!r} is not the name of an image", hint="a name is: repository:tag") from None
        if not isinstance(raw, dict) or not isinstance(raw.get("Id"), str):
            raise EngineUnavailable(
                f"{self.address.url!r} answers, but not as a container engine does",
                hint="is DOCKER_HOST right? see: corral doctor",
            )
        config = raw.get("Config") or {}
        return ImageFacts(
            raw["Id"],
            tuple(config.get("Env") or ()),
            tuple(config.get("Volumes") or ()),
            await self._find_remap(raw),
            f"{raw.get('Os', '')}/{raw.get('Architecture', '')}",
        )

    async def _find_remap(self, image: Mapping[str, Any]) -> Remap | None:
        """Whether containers have other user ids than this machine. An overlay2 engine that maps none has said so with
        the image: a question of its own would cost each start 10 ms."""
        if rules_out_remap(image):
            return None
        info = await self.call("describe itself", lambda client: client.info())
        return find_remap(info, is_local=self.is_local)

    async def create_container(self, config: Config, name: str) -> str:
        """Returns the id. The name is the caller's, so that one made after the limit can be found and removed."""

        def create(client: APIClient) -> str:
            # The plain dict as it is: docker-py's own builder knows no MaskedPaths and ReadonlyPaths.
            reply: dict[str, Any] = client.create_container_from_config(dict(config), name)  # type: ignore[no-untyped-call]
            return str(reply["Id"])

        return await self.call("create the container", create, CHANGE_S)

    async def attach(self, container: str) -> socket.socket | TlsStream:
        """The container's stdin, stdout and stderr as one stream, before it is started."""
        if self.address.certificates is not None:
            return await self._attach_over_tls(container)

        def attach(client: APIClient) -> socket.socket:
            params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            raw: Any = client.attach_socket(container, params=params)
            return _own_socket(raw)

        return await self.call("attach to the container", attach)

    async def _attach_over_tls(self, container: str) -> TlsStream:
        version = "" if self._version == "auto" else f"/v{self._version}"
        path = f"{version}/containers/{container}/attach?stdin=1&stdout=1&stderr=1&stream=1"
        try:
            async with asyncio.timeout(QUICK_S):
                return await open_tls_stream(self.address, path)
        except OSError as error:  # the time limit, too
            raise explain("attach to the container", error, self.address) from error

    async def start_container(self, container: str, limit_s: float = CHANGE_S) -> None:
        await self.call("start the container", lambda client: client.start(container), limit_s)

    async def remove_container(self, container: str, limit_s: float = CHANGE_S) -> bool:
        """Kill and remove with its volumes; whether it was there."""
        with contextlib.suppress(ObjectGone):
            await self.call("remove the container", lambda client: remove_container(client, container), limit_s)
            return True
        return False

    async def remove_volumes(self, label: str) -> None:
        """Remove what volumes carry this label and are in nobody's use."""
        await self.call("remove volumes", lambda client: remove_volumes(client, label))

    async def count_resources(self) -> tuple[int, int]:
        """Processors and bytes of memory of the machine the engine runs on."""
        if self.is_local:
            return os.cpu_count() or 1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        info = await self.call("describe itself", lambda client: client.info())
        return int(info["NCPU"]), int(info["MemTotal"])


def remove_container(client: APIClient, container: str) -> None:
    """Kill and remove with its anonymous volumes, and wait until a removal that is under way is done."""
    from docker.errors import APIError, NotFound  # late: start-up time

    try:
        client.remove_container(container, force=True, v=True)
    except NotFound:
        raise
    except APIError as error:
        if error.status_code != 409:  # "removal already in progress": AutoRemove is faster
            raise
        client.wait(container, condition="removed")


def remove_volumes(client: APIClient, label: str) -> None:
    from docker.errors import APIError, NotFound  # late: start-up time

    for volume in client.volumes(filters={"label": label})["Volumes"] or ():
        try:
            client.remove_volume(volume["Name"])
        except NotFound:
            continue
        except APIError as error:
            if error.status_code != 409:  # in use: by a container that is just going, whose removal takes it along
                raise


def run_in_thread(work: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Run blocking work in a daemon thread of its own: it never holds up others, nor the end of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():  # nobody waits any more
            _drop(result)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # handed to the task that waits
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the loop has been closed meanwhile
            _drop(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _drop_unfetched(future: asyncio.Future[Any]) -> None:
    """Who waited was cancelled in the moment the result came, and never got it."""
    if not future.cancelled() and future.exception() is None:
        _drop(future.result())


def _drop(result: object) -> None:
    if isinstance(result, socket.socket):
        result.close()


def _own_socket(raw: Any) -> socket.socket:
    """The connection under docker-py's file object, as a plain socket that outlives the client."""
    connection = getattr(raw, "_sock", raw)
    if not isinstance(connection, socket.socket) or hasattr(connection, "context"):
        raise EngineUnavailable(
            "this kind of engine connection cannot carry the channel",
            hint="reach the engine by unix://, tcp:// or ssh://",
        )
    copy = connection.dup()
    if raw is not connection:
        raw.close()
    connection.close()
    return copy


def _explain(what: str, error: Exception, address: Address) -> SandboxError:
    """What an engine answered, or that none did, in our words and with what to do."""
    from docker.errors import APIError, ImageNotFound, NotFound  # late: start-up time

    if isinstance(error, NotFound):
        kind = "image" if isinstance(error, ImageNotFound) or "No such image" in str(error) else "object"
        return ObjectGone(f"the engine knows no such {kind}")
    if isinstance(error, APIError) and error.status_code == 409:
        return NameTaken(f"the engine refused to {what}: {visible(str(error.explanation or error), limit=500)}")
    if isinstance(error, APIError) and _WANTS_TLS in str(error.explanation):
        return EngineUnavailable(
            f"the container engine at {address.url!r} cannot be used: it speaks TLS only",
            hint="set DOCKER_TLS_VERIFY=1, and DOCKER_CERT_PATH to the folder with ca.pem, cert.pem and key.pem",
        )
    if isinstance(error, APIError) and _IS_PODMAN in str(error.explanation):
        # It takes the profile for the name of a file: nothing may start under another one.
        return EngineUnavailable(f"the engine at {address.url!r} cannot make boxes: it is Podman's", hint=USE_DOCKER)
    if isinstance(error, APIError):
        return SandboxError(f"the engine refused to {what}: {visible(str(error.explanation or error), limit=500)}")
    return explain(what, error, address)
