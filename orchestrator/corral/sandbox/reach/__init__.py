"""The way to an engine, wherever it is: this machine's socket, TCP with TLS, SSH. One client for all of corral."""

from corral.sandbox.reach.address import Address, find_address
from corral.sandbox.reach.client import API_VERSION, open_api, open_client
from corral.sandbox.reach.explain import USE_DOCKER, explain
from corral.sandbox.reach.stream import TlsStream, open_tls_stream

__all__ = [
    "API_VERSION",
    "USE_DOCKER",
    "Address",
    "TlsStream",
    "explain",
    "find_address",
    "open_api",
    "open_client",
    "open_tls_stream",
]
