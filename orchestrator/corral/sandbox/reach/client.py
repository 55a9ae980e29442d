"""docker-py's clients over every way to an engine. The imports that take time stand in the functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corral.sandbox.reach.address import Address

if TYPE_CHECKING:
    from docker import APIClient, DockerClient

API_VERSION = "1.41"
"""The oldest with all that we use (Docker 20.10). Asking each engine first would cost 10 ms of every start."""


def open_api(address: Address, *, timeout_s: float | None, version: str = API_VERSION) -> APIClient:
    """A fresh client of the raw API; close it. Raises DockerException, OSError, EngineUnavailable."""
    client = _open_over_ssh(address, timeout_s) if address.is_ssh else _open_by_socket(address, timeout_s)
    # SECURITY: with the environment's word a bundle of public authorities would stand for ca.pem, and a proxy would
    # get what is for the engine (test_an_authority_of_the_environment_is_none_for_the_engine).
    client.trust_env = False
    if version != API_VERSION:
        try:
            client._version = (  # type: ignore[attr-defined]
                client.version(api_version=False)["ApiVersion"] if version == "auto" else version
            )
        except BaseException:
            client.close()
            raise
    return client


def open_client(address: Address, *, timeout_s: float) -> DockerClient:
    """The same with objects around it; asks the engine for its version."""
    from docker import DockerClient  # late: start-up time

    api = open_api(address, timeout_s=timeout_s, version="auto")
    client = DockerClient.__new__(DockerClient)  # its own constructor knows no ssh without a library
    client.api = api
    return client


def _open_by_socket(address: Address, timeout_s: float | None) -> APIClient:
    from docker import APIClient  # late: start-up time

    options: dict[str, Any] = {"version": API_VERSION, "timeout": timeout_s}
    if address.certificates is not None:
        from docker.tls import TLSConfig  # late: start-up time

        address.check_files()
        ca, cert, key = (str(address.certificates / name) for name in ("ca.pem", "cert.pem", "key.pem"))
        options["tls"] = TLSConfig(client_cert=(cert, key), ca_cert=ca, verify=True)
    return APIClient(base_url=address.url, **options)


def _open_over_ssh(address: Address, timeout_s: float | None) -> APIClient:
    from docker import APIClient  # late: start-up time

    from corral.sandbox.reach.ssh import SshAdapter

    adapter = SshAdapter(address.url, timeout_s)
    # A client for a socket: it connects to nothing before it is asked, and by then its way is ours.
    client = APIClient(base_url="unix:///ssh", version=API_VERSION, timeout=timeout_s)  # type: ignore[arg-type]
    client.mount("http+docker://", adapter)
    return client
