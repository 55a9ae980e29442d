"""The engine's runtime for a box, where it is another than the engine's own: what its failures mean for the user."""

from __future__ import annotations

from corral.errors import ConfigError, CorralError, EngineTimeout, SandboxError
from corral.sandbox.engine import CHANGE_S
from corral.sandbox.spec import RUNC

START_LIMIT_S = 20.0
"""gVisor needs a second. One that hangs (its KVM platform in a machine without nested virtualisation) never ends."""
_UNKNOWN = ("unknown runtime", "invalid runtime name")


def limit_start(runtime: str) -> float:
    """Seconds a container of this runtime may take to start."""
    return CHANGE_S if runtime == RUNC else START_LIMIT_S


def explain_failure(error: SandboxError, runtime: str) -> CorralError:
    """What kept a container from being made and started, as the user's to mend where the runtime was chosen."""
    if runtime == RUNC:
        return error
    if any(words in error.message.lower() for words in _UNKNOWN):
        return ConfigError(
            f"the engine has no runtime {runtime!r}",
            hint="name it in the engine's daemon.json (gVisor: apt-get install runsc), or leave `runtime` out",
        )
    if isinstance(error, EngineTimeout):
        return ConfigError(
            f"the runtime {runtime!r} did not start a box within {START_LIMIT_S:g} s",
            hint="see its log; gVisor's platform ptrace runs everywhere; or leave `runtime` out of the settings",
        )
    if "OCI runtime" in error.message:
        return ConfigError(
            f"the runtime {runtime!r} cannot start a box: {error.message.rpartition('OCI runtime ')[2]}",
            hint=_hint(error),
        )
    return error


def _hint(error: SandboxError) -> str:
    if "root network namespace" in error.message:
        return 'give gVisor the argument "--network=none" in the engine\'s daemon.json: a box has no network anyway'
    return "try it: docker run --rm --runtime NAME --network none IMAGE true; or leave `runtime` out of the settings"
