"""Models: one contract, an adapter for OpenAI-compatible endpoints, and two that need none (scripted, replay)."""

from corral.llm.client import ModelClient, OnText
from corral.llm.openai import OpenAIModel
from corral.llm.replay import ReplayModel
from corral.llm.scripted import Script, ScriptedCall, ScriptedModel, ScriptedReply, load_script
from corral.llm.select import open_model
from corral.llm.wire import digest_request, estimate_tokens

__all__ = [
    "ModelClient",
    "OnText",
    "OpenAIModel",
    "ReplayModel",
    "Script",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedReply",
    "digest_request",
    "estimate_tokens",
    "load_script",
    "open_model",
]
