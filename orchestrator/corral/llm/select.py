"""Which model a run talks to, from its name and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from corral.errors import ConfigError
from corral.llm.client import ModelClient
from corral.llm.openai import OpenAIModel
from corral.llm.scripted import ScriptedModel, load_script

SCRIPTED = "scripted:"
_NO_MODEL_HINT = (
    "set CORRAL_MODEL or --model, and OPENAI_API_KEY or OPENAI_BASE_URL; `corral demo` and `corral exec` need no model"
)


def open_model(
    name: str | None, *, environ: Mapping[str, str], base_url: str | None = None, api_key_env: str = "OPENAI_API_KEY"
) -> ModelClient:
    """The model called `name`: `scripted:FILE`, or one of the endpoint at `base_url`. Raises ConfigError.

    The key is read from the environment here and goes nowhere but into the requests to that endpoint.
    """
    if not name:
        raise ConfigError("no model is configured", hint=_NO_MODEL_HINT)
    if name.startswith(SCRIPTED):
        return ScriptedModel(load_script(Path(name.removeprefix(SCRIPTED))))
    base_url = base_url or environ.get("OPENAI_BASE_URL") or None
    key = environ.get(api_key_env, "").strip()
    if base_url is None and not key:
        raise ConfigError(f"no key for the model {name!r}: {api_key_env} is not set", hint=_NO_MODEL_HINT)
    if base_url is not None and not base_url.startswith(("http://", "https://")):
        raise ConfigError(f"the model's address {base_url!r} is no http or https address", hint="see OPENAI_BASE_URL")
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"{api_key_env} holds characters that no key has", hint="look for a stray newline or quote")
    # Servers on one's own machine take any key, but the protocol wants one.
    return OpenAIModel(name, api_key=key or "none", base_url=base_url)
