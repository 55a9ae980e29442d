"""Every error code has its row, with the exit code the class has; and no row is for a code that is gone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from corral import errors
from corral.errors import CorralError, ModelError
from corral_protocol.error import ErrorCode

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reference" / "errors.md").read_text()


def section_rows(title: str) -> list[list[str]]:
    section = TEXT.split(f"## {title}\n")[1].split("\n## ")[0]
    return [
        [cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in section.splitlines() if "| `" in line
    ]


def error_classes() -> list[type[CorralError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, CorralError)]
    return [kind for kind in found if kind.__module__ == "corral.errors"]


def codes_given_by_name(class_name: str) -> Iterator[str]:
    """Literal `code=` arguments where an error of that class is made."""
    for path in (ROOT / "orchestrator").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == class_name:
                values = (word.value for word in node.keywords if word.arg == "code")
                yield from (str(value.value) for value in values if isinstance(value, ast.Constant))


def test_every_error_class_has_its_row_with_its_exit_code() -> None:
    rows = {(row[0], row[1]) for row in section_rows("By who must act")}
    assert rows == {(kind.code, str(kind.exit_code)) for kind in error_classes()}


def test_every_code_that_travels_has_its_row() -> None:
    assert [row[0] for row in section_rows("Of a tool call")] == [code.value for code in ErrorCode]


def test_every_code_of_a_model_error_has_its_row() -> None:
    rows = {row[0] for row in section_rows("Of a model endpoint")}
    assert {*codes_given_by_name("ModelError"), *ModelError.transient_codes} - rows == set()


def test_the_tree_at_the_top_of_errors_names_every_class() -> None:
    named = {word for word in (errors.__doc__ or "").replace("(", " ").split() if word.isidentifier()}
    assert {kind.__name__ for kind in error_classes()} - named == set()
