"""`import corral` is cheap, and gives exactly the names that are promised."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import corral
import corral.api

SOURCE = Path(corral.__file__).read_text()


def test_the_promised_names_exist_and_nothing_else_is_promised() -> None:
    assert {name: getattr(corral, name).__name__ for name in corral.__all__}
    assert sorted(corral.__all__) == corral.__all__ and set(corral.__all__) <= set(dir(corral))
    assert set(corral.api.__all__) <= set(corral.__all__)
    with pytest.raises(AttributeError, match="no attribute 'sandboxes'"):
        _ = corral.sandboxes  # type: ignore[attr-defined]


def test_a_type_checker_sees_the_same_names() -> None:
    (block,) = [
        node
        for node in ast.parse(SOURCE).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    names = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names == set(corral.__all__) == set(corral._HOMES)


def test_importing_corral_loads_nothing_heavy() -> None:
    program = (
        "import sys, corral; print([m for m in sys.modules if m.split('.')[0] in {'corral', 'pydantic', 'docker'}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['corral']"


def test_every_public_call_says_what_it_does() -> None:
    classes = [corral.Sandbox, corral.Agent, corral.AgentResult, corral.CommandResult]
    silent = [
        f"{kind.__name__}.{name}"
        for kind in classes
        for name in dir(kind)
        if not name.startswith("_")
        and (callable(value := getattr(kind, name)) or isinstance(value, property))
        and not value.__doc__
    ]
    assert silent == []
