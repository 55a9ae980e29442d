"""What went wrong on the way to an engine, in our words and with what to do about it."""

from __future__ import annotations

import errno
import socket
import ssl

from corral.errors import EngineTimeout, EngineUnavailable, SandboxError
from corral.sandbox.reach.address import Address, SshFailure
from corral.schema.visible import visible

USE_DOCKER = (
    "use Docker Engine: Podman's socket takes neither a seccomp profile nor limits on files in memory from a client"
)
_WAY = "is it up, and is there a way to it?"
_DOCTOR = "see: corral doctor"
# By what ssh, or the docker command over there, says; the first that fits.
_SSH = (
    ("there is no ssh client", "there is no ssh client on this machine", "as root: apt-get install openssh-client"),
    ("Host key verification failed", "ssh does not know the host's key", "check and accept it once: ssh {host}"),
    (
        "Permission denied (",
        "ssh was refused: no key of yours is accepted there",
        "try: ssh {host}; is ssh-agent running?",
    ),
    ("Could not resolve hostname", "there is no such host", "is DOCKER_HOST right?"),
    ("Connection refused", "no ssh server answers there", "is DOCKER_HOST right, and sshd running?"),
    ("timed out", "the host does not answer", _WAY),
    ("No route to host", "there is no way to the host", _WAY),
    ("unreachable", "there is no way to the host", _WAY),
    ("not found", "there is no docker command over there", "install Docker's client on that host (20.10 or newer)"),
    ("permission denied", "your user over there may not use its engine", "add it to the docker group of that host"),
    ("Cannot connect to the Docker daemon", "no engine answers over there", "start it on that host"),
    ("no such file", "no engine answers over there", "start it on that host, or name its socket in DOCKER_HOST"),
)
_CUT = "it ends the connection: it refuses your certificate, or is no engine"
# By what OpenSSL says.
_TLS = (
    ("certificate has expired", "its certificate has expired", "make a new one on the engine's host"),
    ("not yet valid", "its certificate is not yet valid", "are the clocks right?"),
    ("mismatch", "its certificate is for another name", "use a name or address that the certificate has"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "its certificate is not of your ca.pem",
        "is it the right engine, and the right ca.pem?",
    ),
    ("WRONG_VERSION_NUMBER", "it speaks no TLS", "unset DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, or make it use TLS"),
    ("CERTIFICATE_EXPIRED", "it refuses your certificate: expired", "make a new cert.pem and key.pem"),
    ("ALERT", "it refuses your certificate", "are cert.pem and key.pem those for this engine?"),
    ("KEY_VALUES_MISMATCH", "cert.pem and key.pem do not belong together", "copy both again"),
    ("EOF", _CUT, "are cert.pem and key.pem those for this engine?"),
)


def explain(what: str, error: Exception, address: Address) -> SandboxError:
    """A failure of docker-py, requests, ssh, TLS or the system that is no answer of an engine."""
    url = address.url
    root = find_root(error)
    if isinstance(root, SandboxError):
        return root
    if isinstance(root, SshFailure):
        return _explain_by(_SSH, str(root), url)
    if isinstance(root, ssl.SSLError):
        return _explain_by(_TLS, f"{root.reason} {root}", url)
    if address.certificates and isinstance(root, ConnectionResetError | BrokenPipeError):
        return _explain_by(_TLS, "EOF", url)  # the alert that says why was lost on the way
    if isinstance(root, PermissionError):
        return EngineUnavailable(
            f"no permission to talk to the container engine at {url!r}",
            hint="add yourself to the docker group (sudo usermod -aG docker $USER, then log in again), or use sudo",
        )
    if isinstance(root, FileNotFoundError | ConnectionRefusedError):
        return EngineUnavailable(
            f"no container engine answers at {url!r}", hint="start it, or set DOCKER_HOST; see: corral doctor"
        )
    if isinstance(root, socket.gaierror):
        return EngineUnavailable(f"the engine's host in {url!r} is not known", hint="is DOCKER_HOST right?")
    if isinstance(root, OSError) and root.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return EngineUnavailable(f"there is no way to the engine's host in {url!r}", hint=_WAY)
    if not address.is_local and isinstance(root, TimeoutError):
        return EngineTimeout(f"the engine at {url!r} did not {what} in time", hint=_WAY)
    if isinstance(root, TimeoutError) or "timed out" in str(error).lower():
        return EngineTimeout(f"the engine did not {what} in time", hint="is the engine overloaded? see its log")
    return EngineUnavailable(
        f"the container engine at {url!r} cannot be used: {visible(str(error), limit=500)}", hint=_DOCTOR
    )


def _explain_by(table: tuple[tuple[str, str, str], ...], words: str, url: str) -> SandboxError:
    for sign, meaning, hint in table:
        if sign in words:
            host = url.removeprefix("ssh://").partition("/")[0]
            return EngineUnavailable(
                f"the container engine at {url!r} cannot be used: {meaning}", hint=hint.format(host=host)
            )
    return EngineUnavailable(
        f"the container engine at {url!r} cannot be used: {visible(words, limit=500)}", hint=_DOCTOR
    )


def find_root(error: BaseException) -> BaseException:
    """The system's own error at the bottom: the libraries wrap it several times, as cause, context or argument."""
    seen: list[BaseException] = [error]
    for candidate in seen:
        if isinstance(candidate, SandboxError | SshFailure):
            return candidate
        if isinstance(candidate, OSError) and isinstance(candidate.errno, int):
            return candidate
        linked = (candidate.__cause__, candidate.__context__, getattr(candidate, "reason", None), *candidate.args)
        seen += [other for other in linked if isinstance(other, BaseException) and other not in seen]
        if len(seen) > 20:
            break
    return error
