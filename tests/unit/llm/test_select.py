from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from corral.errors import ConfigError
from corral.llm import OpenAIModel, ScriptedModel, open_model
from corral.llm.usage import find_cost, parse_usage
from corral.schema.messages import Usage

KEY = "sk-corral-0123456789"


def test_model_and_endpoint_come_from_the_environment() -> None:
    model = open_model("gpt-x", environ={"OPENAI_API_KEY": KEY})
    assert isinstance(model, OpenAIModel)
    assert (model.name, model.endpoint) == ("gpt-x", "api.openai.com")
    local = open_model("m", environ={"OPENAI_BASE_URL": "http://localhost:8000/v1"})
    assert local.endpoint == "localhost:8000"
    named = open_model("m", environ={"OTHER": KEY}, base_url="https://llm.example/v1", api_key_env="OTHER")
    assert named.endpoint == "llm.example"
    assert KEY not in repr(model) + repr(named)


def test_script_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"replies": [{"text": "hi"}]}')
    assert isinstance(open_model(f"scripted:{tmp_path / 's.json'}", environ={}), ScriptedModel)


@pytest.mark.parametrize(
    ("name", "environ", "message"),
    [
        (None, {}, "no model is configured"),
        ("", {"OPENAI_API_KEY": KEY}, "no model is configured"),
        ("gpt-x", {}, "no key for the model 'gpt-x': OPENAI_API_KEY is not set"),
        ("m", {"OPENAI_BASE_URL": "localhost:8000"}, "is no http or https address"),
        ("m", {"OPENAI_API_KEY": "sk-\u2028secret"}, "OPENAI_API_KEY holds characters that no key has"),
    ],
)
def test_what_is_missing_is_told_with_a_way_out(name: str | None, environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        open_model(name, environ=environ)
    assert caught.value.hint
    assert "secret" not in caught.value.message


def test_importing_the_room_does_not_import_the_client() -> None:
    code = "import sys, corral.llm; print(sorted({'openai', 'httpx2', 'genai_prices'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_cost_is_known_for_priced_models_only() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    cached = Usage(input_tokens=1_000_000, output_tokens=0, cached_tokens=1_000_000)
    full = find_cost("gpt-4o", usage, None)
    assert full is not None
    assert full > 0
    assert (find_cost("gpt-4o", cached, None) or full) < full
    assert find_cost("gpt-4o", usage, "https://proxy.example/v1") == full
    assert find_cost("gpt-4o", usage, "http://127.0.0.1:8000/v1") is None
    assert find_cost("gpt-4o", usage, "http://llm:8000/v1") is None
    assert find_cost("nobody-knows-this", usage, None) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(input_tokens=5, output_tokens=2)),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}},
            Usage(input_tokens=5, output_tokens=2, cached_tokens=5),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 3},
            Usage(input_tokens=5, output_tokens=2, cached_tokens=3),
        ),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        ({"prompt_tokens": -1, "completion_tokens": 2}, None),
        ({"prompt_tokens": True, "completion_tokens": 2}, None),
        ({"prompt_tokens": None}, None),
        ("many", None),
        (None, None),
    ],
)
def test_usage_is_believed_only_where_it_makes_sense(value: object, expected: Usage | None) -> None:
    assert parse_usage(value) == expected
