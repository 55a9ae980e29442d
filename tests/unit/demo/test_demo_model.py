from __future__ import annotations

import pytest

from corral.config import ModelSettings, Settings
from corral.demo import choose_model


@pytest.mark.parametrize(
    ("model", "environ", "scripted", "told"),
    [
        ({}, {}, True, "with OPENAI_API_KEY or OPENAI_BASE_URL and CORRAL_MODEL set, a real model does it"),
        ({"name": "m"}, {}, True, "with OPENAI_API_KEY or OPENAI_BASE_URL and CORRAL_MODEL set, a real model does it"),
        ({}, {"OPENAI_API_KEY": "k"}, True, "CORRAL_MODEL=NAME corral demo uses it"),
        ({"base_url": "http://h/v1"}, {}, True, "CORRAL_MODEL=NAME corral demo uses it"),
        ({"name": "m"}, {"OPENAI_API_KEY": "k"}, False, "the model is m; it may cost at most $0.50"),
        ({"name": "m", "base_url": "http://h/v1"}, {}, False, "the model is m; it may cost at most $0.50"),
        ({"name": "m", "api_key_env": "MY_KEY"}, {"MY_KEY": "k"}, False, "the model is m"),
    ],
)
def test_a_real_model_is_used_only_when_all_of_it_is_configured(
    model: dict[str, str], environ: dict[str, str], scripted: bool, told: str
) -> None:
    choice = choose_model(Settings(model=ModelSettings(**model)), environ)
    assert (choice.is_scripted, told in choice.words[-1]) == (scripted, True)
    assert ("the model is scripted" in choice.words[0]) is scripted
