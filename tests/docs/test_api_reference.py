from __future__ import annotations

from tests.docs.api_reference import TARGET, _find_members, render_reference

import corral


def test_api_reference_is_what_the_docstrings_say() -> None:
    assert TARGET.read_text() == render_reference(), "run: python -m tests.docs.api_reference"


def test_every_public_name_and_member_says_what_it_is() -> None:
    silent = [
        f"{name}.{member}"
        for name in corral.__all__
        for member, value in _find_members(getattr(corral, name))
        if not value.__doc__
    ]
    assert silent == []
    assert [name for name in corral.__all__ if f"## {name}\n" not in TARGET.read_text()] == ["Event", "Patch"]
