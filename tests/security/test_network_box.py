"""Real programs in a real box: what they reach, what they do not, and what they cannot bring down."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import time
import zipfile
from pathlib import Path

import pytest
from tests.contract.boxes import find_leftovers
from tests.support.network import open_net_box, resolve_as, serve_files
from tests.support.tunnel import serve

from corral.agent.run import Ending
from corral.agent.setup import Setup
from corral.agent.stop import StopReason
from corral.app.network import NetworkPlan, read_rules
from corral.errors import ConfigError, SetupFailed
from corral.sandbox.base import Sandbox
from corral.schema.events import NetworkChanged
from corral.schema.policy import Preset

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package index, a repository, a file of some size, a certificate."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "hello").write_text("hello from outside\n")
    (folder / "big").write_bytes(bytes(range(256)) * (40 << 10))
    _make_index(folder)
    _make_repository(folder)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=site.test"),
            *("-addext", "subjectAltName=DNS:site.test"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


def _make_index(folder: Path) -> None:
    page = folder / "simple" / "demo-thing"
    page.mkdir(parents=True)
    wheel = page / "demo_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("demo_thing.py", "print('the demo thing')\n")
        info = "demo_thing-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: demo-thing\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    (page / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')


def _make_repository(folder: Path) -> None:
    work = folder / "work"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@test", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q", str(work)], check=True)
    (work / "README").write_text("a repository\n")
    subprocess.run([*git, "-C", str(work), "add", "."], check=True)
    subprocess.run([*git, "-C", str(work), "commit", "-qm", "first"], check=True)
    subprocess.run([*git, "clone", "-q", "--bare", str(work), str(folder / "repo.git")], check=True)
    subprocess.run([*git, "-C", str(folder / "repo.git"), "update-server-info"], check=True)


async def test_curl_pip_and_git_over_http(site: Path, tmp_path: Path, image: str) -> None:
    with serve_files(site) as port:
        dialer = resolve_as({"site.test": "127.0.0.1"}, port)
        async with open_net_box(tmp_path, image, allow=(f"site.test:{port}",), dialer=dialer) as net:
            url = f"http://site.test:{port}"
            assert await net.run(f"curl -fsS {url}/hello") == (0, "hello from outside\n")
            code, text = await net.run(f"curl -fsS {url}/big | sha256sum; sha256sum < /dev/null | wc -c")
            assert code == 0 and text.startswith(
                subprocess.run(["sha256sum", site / "big"], capture_output=True, text=True).stdout.split()[0]
            )
            install = f"pip install -q --target /tmp/t --trusted-host site.test --index-url {url}/simple demo-thing"
            assert await net.run(f"{install} 2>&1 && PYTHONPATH=/tmp/t python3 -m demo_thing") == (
                0,
                "the demo thing\n",
            )
            assert await net.run(f"git clone -q {url}/repo.git /tmp/r && cat /tmp/r/README") == (0, "a repository\n")
            assert {one.host for one in net.notes.attempts if one.allowed} == {"site.test"}
            assert net.network.report.bytes_in > (site / "big").stat().st_size


async def test_curl_pip_and_git_over_https(site: Path, tmp_path: Path, image: str) -> None:
    """Through CONNECT: the programs see the site's own certificate, and nobody in between reads a byte."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(site / "cert.pem", site / "key.pem")
    with serve_files(site, tls) as port:
        dialer = resolve_as({"site.test": "127.0.0.1"}, port)
        async with open_net_box(tmp_path, image, allow=(f"site.test:{port}",), dialer=dialer) as net:
            await net.box.write_file("/tmp/ca.pem", (site / "cert.pem").read_bytes())
            url = f"https://site.test:{port}"
            assert await net.run(f"curl -fsS --cacert /tmp/ca.pem {url}/hello") == (0, "hello from outside\n")
            install = f"pip install -q --target /tmp/t --cert /tmp/ca.pem --index-url {url}/simple demo-thing"
            assert await net.run(f"{install} 2>&1 && PYTHONPATH=/tmp/t python3 -m demo_thing") == (
                0,
                "the demo thing\n",
            )
            clone = f"git -c http.sslCAInfo=/tmp/ca.pem clone -q {url}/repo.git /tmp/r && cat /tmp/r/README"
            assert await net.run(clone) == (0, "a repository\n")
            socks = "--socks5-hostname ${CORRAL_SOCKS_PROXY#*//}"
            assert await net.run(f"curl -fsS --noproxy '' {socks} --cacert /tmp/ca.pem {url}/hello") == (
                0,
                "hello from outside\n",
            )
            assert {one.scheme for one in net.notes.attempts} == {"tunnel", "socks"}


async def test_what_is_not_listed_is_refused_and_says_so(site: Path, tmp_path: Path, image: str) -> None:
    with serve_files(site) as port:
        names = {"site.test": "127.0.0.1", "inside.test": "10.0.0.1", "meta.test": "169.254.169.254"}
        dialer = resolve_as(names, port)
        allow = (f"site.test:{port}", "inside.test:80", "meta.test:80")
        async with open_net_box(tmp_path, image, allow=allow, dialer=dialer) as net:
            code, text = await net.run("curl -sS -o /dev/null -w '%{http_code}' https://evil.test/ 2>&1")
            assert code == 56 and "403" in text
            for url, reason in (
                ("http://evil.test/", "this host is not on the run's list"),
                ("http://inside.test/", "10.0.0.1 is private"),
                ("http://meta.test/", "169.254.169.254 is link-local"),
                (
                    "http://169.254.169.254/",
                    "private, loopback and link-local addresses are never reached from the box",
                ),
                (f"http://site.test:{port + 1}/", "this host is not on the run's list"),
            ):
                assert await net.run(f"curl -sS {url}") == (0, f"corral: {reason}\n"), url
            # Around the proxy there is nothing at all.
            code, text = await net.run("curl -sS --noproxy '*' --connect-timeout 3 http://1.1.1.1/ 2>&1")
            assert code in (7, 28), text
            refused = [(one.host, one.rules) for one in net.notes.attempts if not one.allowed]
            assert ("evil.test", ("network/not-listed",)) in refused
            assert ("169.254.169.254", ("builtin/private-host", "network/not-listed")) in refused


async def test_a_box_without_network_has_no_proxy(tmp_path: Path, image: str) -> None:
    from tests.contract.boxes import docker_maker, output

    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with docker_maker(image)(workspace, tmp_path) as box:
        result = await box.shell("env | grep -ci proxy; cat /proc/net/tcp | wc -l; ls /sys/class/net")
        assert output(result.stdout) == b"0\n1\nlo\n"


async def test_the_list_changes_while_it_runs(site: Path, tmp_path: Path, image: str) -> None:
    with serve_files(site) as port:
        dialer = resolve_as({"site.test": "127.0.0.1"}, port)
        async with open_net_box(tmp_path, image, dialer=dialer) as net:
            ask = f"curl -sS http://site.test:{port}/hello"
            refused = (0, "corral: this host is not on the run's list\n")
            assert await net.run(ask) == refused
            net.network.allow(f"site.test:{port}")
            assert await net.run(ask) == (0, "hello from outside\n")
            net.network.revoke(f"site.test:{port}")
            assert await net.run(ask) == refused
            with pytest.raises(ConfigError, match="loopback"):
                net.network.allow("127.0.0.1:80")
            changes = [one.hosts for one in net.notes.payloads if isinstance(one, NetworkChanged)]
            assert changes == [(), (f"site.test:{port}",), ()]


async def test_a_download_is_cut_when_its_host_is_revoked(tmp_path: Path, image: str) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(bytes(1000))
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serve(pour) as port:
        dialer = resolve_as({"site.test": "127.0.0.1"}, port)
        async with open_net_box(tmp_path, image, allow=(f"site.test:{port}",), dialer=dialer) as net:
            task = asyncio.ensure_future(net.run(f"curl -sS -o /dev/null http://site.test:{port}/"))
            while not net.network.report.reached:
                await asyncio.sleep(0.02)
            net.network.use("none")
            code, text = await asyncio.wait_for(task, 20)
            assert code in (18, 56), text
        assert net.notes.ends[-1].outcome == "revoked"


async def test_network_phases(site: Path, tmp_path: Path, image: str) -> None:
    """The set-up reaches the index; the agent does not, and neither does what the set-up left running."""
    with serve_files(site) as port:
        dialer = resolve_as({"site.test": "127.0.0.1"}, port)
        plan = NetworkPlan((), (), phase="agent", setup_rules=read_rules(allow=(f"site.test:{port}",)))
        async with open_net_box(tmp_path, image, plan=plan, dialer=dialer) as net:
            ask = f"curl -sS http://site.test:{port}/hello"
            seen: list[tuple[int, str]] = []

            async def agent(box: Sandbox) -> Ending:
                seen.append(await net.run(f"cat got; {ask}; pgrep -c sleep"))
                return Ending(StopReason.FINISHED)

            async def end_phase() -> None:
                net.network.end_setup()

            setup = Setup(f"{ask} > got && (sleep 100 &)", net.notes, end_phase, agent)
            assert (await setup(net.box)).reason is StopReason.FINISHED
            assert seen == [(1, "hello from outside\ncorral: this host is not on the run's list\n0\n")]
            assert [(one.phase, one.allowed) for one in net.notes.attempts] == [("setup", True), ("agent", False)]
            with pytest.raises(SetupFailed, match="exit 3") as failed:
                await Setup("echo no luck >&2; exit 3", net.notes, end_phase, agent)(net.box)
            assert failed.value.hint == "no luck"


async def test_a_policy_of_the_preset_plan_denies_all(site: Path, tmp_path: Path, image: str) -> None:
    with serve_files(site) as port:
        dialer = resolve_as({"site.test": "127.0.0.1"}, port)
        async with open_net_box(
            tmp_path, image, allow=(f"site.test:{port}",), dialer=dialer, preset=Preset.PLAN
        ) as net:
            assert (await net.run(f"curl -sS http://site.test:{port}/hello"))[1].startswith("corral: ")


async def test_a_port_of_the_box_is_forwarded(tmp_path: Path, image: str) -> None:
    async with open_net_box(tmp_path, image, dialer=resolve_as({})) as net:
        port = await net.network.forward(8000)
        await net.box.write_file("page", b"from the box\n")
        server = asyncio.ensure_future(net.box.exec(["python3", "-m", "http.server", "8000"]))

        def ask() -> bytes:
            with socket.create_connection(("127.0.0.1", port), 5) as sock:
                sock.sendall(b"GET /page HTTP/1.0\r\n\r\n")
                got = b""
                while piece := sock.recv(1 << 16):
                    got += piece
                return got

        for _ in range(100):
            try:
                answer = await asyncio.to_thread(ask)
            except ConnectionResetError:  # it has not started yet
                answer = b""
            if answer:
                break
            await asyncio.sleep(0.1)
        assert answer.endswith(b"\r\n\r\nfrom the box\n")
        assert {(one.scheme, one.port) for one in net.notes.attempts} == {("forward", 8000)}
        told = [one.forwards for one in net.notes.payloads if isinstance(one, NetworkChanged)]
        assert told == [(), (f"8000 at 127.0.0.1:{port}",)]
        with pytest.raises(ConfigError, match="cannot be had"):
            await net.network.forward(8001, port)
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)


_FLOOD = """
import os, socket, threading, time
host, port = os.environ["HTTP_PROXY"].rsplit("/", 1)[1].split(":")
def pour(number):
    end = time.time() + 6
    while time.time() < end:
        try:
            with socket.create_connection((host, int(port)), 5) as sock:
                kind = number % 5
                if kind == 0: sock.sendall(b"GET http://evil%d.test/ HTTP/1.1\\r\\n\\r\\n" % number)
                if kind == 1: sock.sendall(b"x" * 100000)
                if kind == 2: sock.sendall(b"CONNECT site.test:PORT HTTP/1.1\\r\\n\\r\\n" + bytes(1 << 20))
                if kind == 3: time.sleep(0.5)
                if kind == 4:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    sock.sendall(b"CONNECT site.test:PORT HTTP/1.1\\r\\n\\r\\n")
                    while time.time() < end: sock.send(b"x")
        except OSError:
            pass
for number in range(200): threading.Thread(target=pour, args=(number,)).start()
"""


async def test_a_flood_holds_up_nobody(tmp_path: Path, image: str) -> None:
    """Two hundred threads that connect, talk nonsense, pour, drip and hang: calls are answered, then all works."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 18):
            pass

    async with serve(swallow) as port:
        dialer = resolve_as({"site.test": "127.0.0.1"}, port)
        async with open_net_box(tmp_path, image, allow=(f"site.test:{port}",), dialer=dialer) as net:
            await net.box.write_file("flood.py", _FLOOD.replace("PORT", str(port)).encode())
            flood = asyncio.ensure_future(net.box.exec(["python3", "flood.py"], timeout_s=60))
            await asyncio.sleep(1)
            slowest = 0.0
            while not flood.done():
                begun = time.monotonic()
                assert (await net.run("echo here", timeout_s=20)) == (0, "here\n")
                slowest = max(slowest, time.monotonic() - begun)
                await asyncio.sleep(0.2)
            assert (await flood).exit_code == 0
            assert slowest < 5.0
            assert (await net.run("curl -sS -o /dev/null -w '%{http_code}' -x $http_proxy http://no.test/"))[1] == "403"
            run_id = net.box.info.run_id
            assert len(net.notes.payloads) < 25_000
    import docker

    assert find_leftovers(docker.from_env(), run_id) == []
