"""Which engine is meant, and how ssh is called for it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from corral.errors import EngineUnavailable
from corral.sandbox.reach import Address, find_address, open_api
from corral.sandbox.reach.address import SshFailure, fix_paths
from corral.sandbox.reach.ssh import SshHost

LOCAL = Address("unix:///var/run/docker.sock")


def write_context(folder: Path, name: str, host: object, *, skips: bool = False, has_tls: bool = False) -> Path:
    """As `docker context create` does; the folder of its certificates."""
    key = hashlib.sha256(name.encode()).hexdigest()
    meta = folder / "contexts" / "meta" / key
    meta.mkdir(parents=True)
    endpoint = {"Host": host, "SkipTLSVerify": skips}
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": endpoint}}))
    certificates = folder / "contexts" / "tls" / key / "docker"
    if has_tls:
        certificates.mkdir(parents=True)
    return certificates


def test_without_a_word_it_is_this_machines(home: Path) -> None:
    assert find_address({}) == LOCAL
    (home / ".docker").mkdir()
    for text in ("no json", "[]", "{}", '{"currentContext": "default"}'):
        (home / ".docker" / "config.json").write_text(text)
        assert find_address({}) == LOCAL


@pytest.mark.parametrize("words", [{"DOCKER_TLS_VERIFY": "1"}, {}])
def test_certificates_mean_tls_that_is_verified(words: dict[str, str]) -> None:
    found = find_address({"DOCKER_HOST": "tcp://h:2376", "DOCKER_CERT_PATH": "/c", **words})
    assert (found, found.is_plain, found.warnings) == (Address("tcp://h:2376", Path("/c")), False, ())


def test_tls_without_a_folder_takes_dockers(home: Path) -> None:
    found = find_address({"DOCKER_HOST": "tcp://h:2376", "DOCKER_TLS_VERIFY": "1"})
    assert found == Address("tcp://h:2376", home / ".docker")
    with pytest.raises(EngineUnavailable) as caught:
        open_api(found, timeout_s=1)
    assert caught.value.message == f"TLS to the engine needs '{home}/.docker/ca.pem': No such file or directory"


@pytest.mark.parametrize("url", ["unix:///run/x", "ssh://u@h"])
def test_tls_is_for_tcp_only(url: str) -> None:
    found = find_address({"DOCKER_HOST": url, "DOCKER_CERT_PATH": "/c", "DOCKER_TLS_VERIFY": "1"})
    assert (found, found.warnings) == (Address(url), ())


def test_tcp_without_tls_is_warned_of() -> None:
    (warning,) = Address("tcp://10.0.0.7:2375").warnings
    assert "'tcp://10.0.0.7:2375' is reached without TLS: whoever reaches that port is root there" in warning


def test_a_context_is_followed(tmp_path: Path) -> None:
    certificates = write_context(tmp_path, "far", "tcp://far:2376", has_tls=True)
    write_context(tmp_path, "by ssh", "ssh://me@far")
    config = {"DOCKER_CONFIG": str(tmp_path)}
    assert find_address({**config, "DOCKER_CONTEXT": "far"}) == Address("tcp://far:2376", certificates)
    (tmp_path / "config.json").write_text('{"currentContext": "by ssh"}')
    assert find_address(config) == Address("ssh://me@far")
    assert find_address({**config, "DOCKER_CONTEXT": "default"}) == LOCAL
    assert find_address({**config, "DOCKER_CONTEXT": "far", "DOCKER_HOST": "unix:///x"}) == Address("unix:///x")


def test_a_context_that_is_none_is_told(tmp_path: Path) -> None:
    write_context(tmp_path, "blind", "tcp://far:2376", skips=True, has_tls=True)
    write_context(tmp_path, "odd", 7)
    told = {
        "blind": "the Docker context 'blind' does not verify its engine",
        "odd": "there is no usable Docker context 'odd'",
        "gone": "there is no usable Docker context 'gone'",
    }
    for name, message in told.items():
        with pytest.raises(EngineUnavailable) as caught:
            find_address({"DOCKER_CONFIG": str(tmp_path), "DOCKER_CONTEXT": name})
        assert caught.value.message == message


def test_paths_hold_in_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fixed = fix_paths({"DOCKER_CERT_PATH": "certs", "DOCKER_CONFIG": "", "A": "b"})
    assert fixed == {"DOCKER_CERT_PATH": f"{tmp_path}/certs", "DOCKER_CONFIG": "", "A": "b"}
    found = find_address({"DOCKER_HOST": "tcp://h", "DOCKER_CERT_PATH": "certs"})
    assert found.certificates == tmp_path / "certs"


def test_an_authority_of_the_environment_is_none_for_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """requests would put the bundle of REQUESTS_CA_BUNDLE in the place of ca.pem, and send to HTTPS_PROXY."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", os.devnull)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    client = open_api(Address("tcp://127.0.0.1:2"), timeout_s=1)
    try:
        used = client.merge_environment_settings("http://127.0.0.1:2/_ping", {}, None, "ca.pem", None)
    finally:
        client.close()
    assert (used["verify"], dict(used["proxies"])) == ("ca.pem", {})


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("ssh://h", SshHost("h")),
        ("ssh://me@h:2222/", SshHost("h", "me", 2222)),
        ("ssh://a%40b@[::1]:22/run/my%20x.sock", SshHost("::1", "a@b", 22, "/run/my x.sock")),
    ],
)
def test_ssh_addresses(url: str, host: SshHost) -> None:
    assert SshHost.parse(url) == host


@pytest.mark.parametrize("url", ["ssh://", "ssh://me@", "ssh://h:port", "ssh://me:word@h", "ssh://h/x?y", "ssh://[h"])
def test_ssh_addresses_that_are_none(url: str) -> None:
    with pytest.raises(SshFailure):
        SshHost.parse(url)


def test_a_host_is_never_an_option() -> None:
    """`-oProxyCommand=...` as a host or a user would run a program here; a socket's name would over there."""
    host = SshHost.parse("ssh://-oProxyCommand=x@-oproxycommand=touch%20y:22/a'b;c$(d)")
    command = host.command(10.0)
    after = command.index("--")
    assert command[after + 1 :] == [
        "-oproxycommand=touch%20y",
        "docker --host 'unix:///a'\"'\"'b;c$(d)' system dial-stdio",
    ]
    assert command[command.index("-l") + 1] == "-oProxyCommand=x"
    assert "BatchMode=yes" in command and "ConnectTimeout=10" in command
