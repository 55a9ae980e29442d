"""What a model is told about the network: the truth about its list, and no more."""

from __future__ import annotations

import pytest

from corral.context.prompt import Frames, build_system_prompt


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ((), "There is no network unless a tool result shows otherwise."),
        (("a.test:443", "*.b.test:80,443"), "through a proxy that the environment names: a.test:443, *.b.test:80,443."),
        (tuple(f"h{number}.test:443" for number in range(32)), "h28.test:443, h29.test:443, 2 more."),
    ],
)
def test_the_list_is_named(hosts: tuple[str, ...], words: str) -> None:
    prompt = build_system_prompt(Frames("/workspace", hosts=hosts))
    assert words in prompt and ("no network" in prompt) == (not hosts)
