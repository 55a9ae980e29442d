"""Which model the demonstration uses: the scripted one, or the user's own where one is configured whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from corral.config import Settings
from corral.llm import ModelClient
from corral.llm.scripted import ScriptedModel, load_script
from corral.resource import find_data

MAX_COST_USD = 0.50
MAX_TOKENS = 300_000
"""Holds where nobody knows the model's price; more than ten times what the task needs."""


@dataclass(frozen=True)
class ModelChoice:
    """`client` is None where the settings' model is used. `words` say which it is, and how to get the other."""

    client: ModelClient | None
    words: tuple[str, ...]

    @property
    def is_scripted(self) -> bool:
        return self.client is not None


def choose_model(settings: Settings, environ: Mapping[str, str]) -> ModelChoice:
    """The user's model when it has a name and an endpoint or a key, else the script. Raises ConfigError."""
    has_endpoint = bool(settings.model.base_url or environ.get(settings.model.api_key_env))
    name = settings.model.name
    if name is not None and has_endpoint:
        return ModelChoice(None, (f"the model is {name}; it may cost at most ${MAX_COST_USD:.2f}",))
    if has_endpoint:
        how = "a model's endpoint is configured but no model is named: CORRAL_MODEL=NAME corral demo uses it"
    else:
        how = f"with {settings.model.api_key_env} or OPENAI_BASE_URL and CORRAL_MODEL set, a real model does it"
    words = ("the model is scripted: its answers stand in a file; box, tools, policy and record are real", how)
    return ModelChoice(ScriptedModel(load_script(find_data("examples") / "demo" / "script.json")), words)
