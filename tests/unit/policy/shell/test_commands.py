"""The lines of commands.yaml, against what stands beside each of them, and against a second reader of the shell."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral.policy.shell import CommandLine, read_command_line

GROUPS = yaml.safe_load((Path(__file__).parent / "commands.yaml").read_text(encoding="utf-8"))
LINES: list[dict[str, Any]] = [entry for group in GROUPS for entry in group["lines"]]
LISTS = ("writes", "hosts", "scripts", "code", "variables")
FLAGS = ("dynamic", "has_error", "more_writes", "more_hosts", "moves")


def describe(line: CommandLine) -> dict[str, Any]:
    """As the corpus writes it: what is empty or false is left out."""
    found: dict[str, Any] = {name: list(getattr(line, name)) for name in LISTS if getattr(line, name)}
    found |= {name: True for name in FLAGS if getattr(line, name)}
    return found | {"programs": sorted(program.name for program in line.programs)}


@pytest.mark.parametrize("entry", LINES, ids=[repr(entry["line"])[:60] for entry in LINES])
def test_a_line_is_read_as_the_corpus_says(entry: dict[str, Any]) -> None:
    expected = {name: value for name, value in entry.items() if name not in ("line", "programs")}
    found = describe(read_command_line(entry["line"]))
    programs = found.pop("programs")
    assert found == expected
    if "programs" in entry:
        assert programs == entry["programs"]
    else:  # a line that is not understood promises nothing
        assert entry["has_error"]


def test_the_corpus_is_large_and_says_everything_once() -> None:
    texts = [entry["line"] for entry in LINES]
    assert len(texts) > 400
    assert [text for text in texts if texts.count(text) > 1] == []


def test_arguments_and_what_stands_around_are_told() -> None:
    line = read_command_line("sudo -u bob find . -name '*.o' -exec rm -f {} + && echo \"$HOME\" 'a b'")
    assert [(program.name, program.arguments, program.within) for program in line.programs] == [
        ("sudo", ("-u", "bob", "find", ".", "-name", "*.o", "-exec", "rm", "-f", "{}", "+"), ()),
        ("echo", (None, "a b"), ()),
        ("find", (".", "-name", "*.o", "-exec", "rm", "-f", "{}", "+"), ("sudo",)),
        ("rm", ("-f", None), ("sudo", "find")),
    ]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "ls \u202e",
            "rm -rf /tmp/\u200bimportant",
            "echo ok\u2028rm x",
            "ls \ufe0f",
            "ls \u00ad",
            "ls \u3164",
            "ls \u2800",
        ),
        *("ls \U000e0100", "ls\rrm x", "ls \x1b[2K", "ls \x9b1A", "ls \x08", "ls\x00rm", "ls\u00a0x", "ls \ud800"),
    ],
)
def test_characters_that_hide_are_told(text: str) -> None:
    assert "it has characters that are not seen" in read_command_line(text).unknown


@pytest.mark.parametrize("text", ["echo gr\u00fc\u00dfe", "git commit -m '\u4fee\u6b63 \U0001f389'", "ls\t-la\n"])
def test_other_alphabets_are_no_reason_to_ask(text: str) -> None:
    assert read_command_line(text).unknown == ()


@pytest.mark.parametrize("text", ["ls\n\\rm x", "ls\n\\\nrm x", "ls > out\n\\rm x", "A=1\n\t\\rm x", "ls # x\n\\rm x"])
def test_a_line_that_begins_with_a_backslash_is_not_taken_for_understood(text: str) -> None:
    assert read_command_line(text).has_error


@pytest.mark.parametrize(
    "text", ["printf 'a\n\\b'", 'printf "a\n\\b"', "cat <<'E'\na\n\\b\nE\n", "ls \\\n  -la \\\n  src"]
)
def test_a_backslash_in_quotes_at_the_start_of_a_line_is_text(text: str) -> None:
    assert not read_command_line(text).has_error


# --- shfmt reads the same language with a parser of its own ---

SHFMT = shutil.which("shfmt", path=str(Path(sys.executable).parent)) or shutil.which("shfmt")
needs_shfmt = pytest.mark.skipif(SHFMT is None, reason="shfmt is not installed: no second opinion on the corpus")
# What shfmt calls a command and is none of its own, or is read differently on purpose.
NO_PROGRAMS = {"[", "f"}


@dataclass(frozen=True)
class Opinion:
    programs: list[str | None]  # None: not static
    is_valid: bool


@pytest.fixture(scope="session")
def opinions() -> dict[str, Opinion]:
    found = {}
    for entry in LINES:
        text = entry["line"]
        done = subprocess.run([str(SHFMT), "--to-json"], input=text.encode(), capture_output=True, check=False)
        tree = json.loads(done.stdout) if done.returncode == 0 else {}
        found[text] = Opinion(list(find_calls(tree)), done.returncode == 0)
    return found


def find_calls(node: Any) -> Iterator[str | None]:
    if isinstance(node, list):
        for item in node:
            yield from find_calls(item)
    elif isinstance(node, dict):
        if node.get("Type") == "CallExpr" and node.get("Args"):
            yield join(node["Args"][0]["Parts"])
        if node.get("Type") == "DeclClause":
            yield node["Variant"]["Value"]
        for value in node.values():
            yield from find_calls(value)


def join(parts: list[dict[str, Any]]) -> str | None:
    text = ""
    for part in parts:
        inner = join(part.get("Parts") or []) if part["Type"] == "DblQuoted" else part.get("Value", "")
        if part["Type"] not in ("Lit", "SglQuoted", "DblQuoted") or part.get("Dollar") or inner is None:
            return None
        text += inner
    return text


@needs_shfmt
def test_what_shfmt_refuses_is_never_taken_for_understood(opinions: dict[str, Opinion]) -> None:
    wrong = [
        text for text, opinion in opinions.items() if not opinion.is_valid and not read_command_line(text).has_error
    ]
    assert wrong == []


@needs_shfmt
def test_every_program_that_shfmt_sees_is_found(opinions: dict[str, Opinion]) -> None:
    missed = []
    for text, opinion in opinions.items():
        line = read_command_line(text)
        if line.has_error or line.dynamic:
            continue
        names = {program.name for program in line.programs} | NO_PROGRAMS
        seen = {name.replace("\\\n", "").replace("\\", "") for name in opinion.programs if name is not None}
        missed += [(text, name) for name in seen - names]
    assert missed == []


@needs_shfmt
def test_a_name_that_shfmt_finds_composed_is_resolved_or_dynamic(opinions: dict[str, Opinion]) -> None:
    resolved = {"$'r\\x6d' x", "$'\\162\\155' x"}  # escapes that only have to be written out
    lines = {text for text, opinion in opinions.items() if None in opinion.programs} - resolved
    quiet = [text for text in lines if not (read_command_line(text).dynamic or read_command_line(text).has_error)]
    assert len(lines) > 6
    assert quiet == []
