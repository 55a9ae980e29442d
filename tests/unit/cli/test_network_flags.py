"""What the network's flags mean."""

from __future__ import annotations

import pytest

from corral.app.request import NetworkRequest
from corral.cli.network import parse_forward, parse_network
from corral.cli.run import check_setup
from corral.config import Settings
from corral.errors import ConfigError


def test_nothing_asked_for_is_the_settings() -> None:
    request = parse_network(None, None, None, None)
    assert request == NetworkRequest()
    assert not request.is_wanted(Settings())
    assert request.is_wanted(Settings.model_validate({"network": {"profiles": ["python"]}}))
    assert request.is_wanted(Settings.model_validate({"network": {"allow": ["example.org"]}}))


def test_names_may_be_joined_by_commas() -> None:
    assert parse_network(["python,git", "none"], ["a.org", "b.org:1"], ["one", "two,three"], ["80", "8000:0"]) == (
        NetworkRequest(("python", "git", "none"), ("a.org", "b.org:1"), ("one", "two", "three"), ((80, 80), (8000, 0)))
    )


def test_none_is_stronger_than_the_settings() -> None:
    request = parse_network(["none"], None, None, None)
    assert request.is_wanted(Settings())
    assert request.profiles == ("none",)


@pytest.mark.parametrize("text", ["", "x", "0", "65536", "80:", "80:x", ":80", "80:65536", "80:80:80", "-1", "８０"])
def test_is_no_port_to_forward(text: str) -> None:
    with pytest.raises(ConfigError, match="names no port"):
        parse_forward(text)


def test_a_network_of_the_set_up_needs_a_set_up() -> None:
    assert check_setup("make deps", ["python"]) == "make deps"
    assert check_setup(None, None) is None
    with pytest.raises(ConfigError, match="--setup-network without --setup"):
        check_setup(None, ["python"])
    with pytest.raises(ConfigError, match="--setup is empty"):
        check_setup("  ", None)
