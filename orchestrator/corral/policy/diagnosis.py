"""Why a policy does not load: which line, and what is allowed there."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from corral.policy.syntax import Statement, Token

ANNOTATIONS = ("id", "reason", "hint")

_OPEN_ENDED = "unexpected end of input"
_CANDIDATES = (
    *("permit", "forbid", "when", "unless", "principal", "action", "resource", "context"),
    *("if", "then", "else", "has", "like", "is", "in", "true", "false"),
    *("(", ")", "{", "}", "[", "]", ",", ";", ":", ".", "@", "!", "-", "*", "+"),
    *("==", "!=", "<", "<=", ">", ">=", "&&", "||", "::"),
)
_NAMED_CAUSES = {
    "invalid policy effect": ("permit", "forbid"),
    "invalid policy condition": ("when", "unless"),
    "invalid variable in the policy scope": ("principal", "action", "resource"),
    "invalid variable": ("principal", "action", "resource", "context"),
    "not a valid operator": ("==", "!=", "<", "<=", ">", ">=", "in", "has", "like", "is", "&&", "||"),
    "not a valid method": ("contains", "containsAll", "containsAny", "isEmpty"),
    "not a valid escape": (r"\"", r"\\", r"\n", r"\t", r"\r", r"\0", r"\*", r"\u{...}"),
}
_QUOTED = re.compile(r"`([^`]+)`|'([^']+)'")
_NAME = re.compile(r"[A-Za-z_]\w*|[^\s\w]+")


@dataclass(frozen=True)
class Diagnosis:
    """One mistake. `allowed` is what could stand there, nearest first where that is known."""

    line: int
    problem: str
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Vocabulary:
    """The names of the policy schema, for saying what is allowed."""

    actions: tuple[str, ...]
    entities: tuple[str, ...]
    values: dict[str, tuple[str, ...]]  # enumerated type -> its ids
    attributes: dict[str, tuple[str, ...]]  # record or entity type -> attribute names

    @property
    def all_attributes(self) -> tuple[str, ...]:
        return tuple(sorted({name for names in self.attributes.values() for name in names}))

    @property
    def context(self) -> tuple[str, ...]:
        """Attributes of `context`, of any action: records are types, entities are not."""
        records = (names for owner, names in self.attributes.items() if owner not in self.entities)
        return tuple(sorted({name for names in records for name in names}))


def parse_vocabulary(schema: str) -> Vocabulary:
    """Read the names out of corral's own schema file (its form is ours: one declaration per statement)."""
    text = re.sub(r"//[^\n]*", "", schema)
    values = {
        owner: tuple(re.findall(r'"([^"]*)"', body))
        for owner, body in re.findall(r"entity (\w+) enum \[([^\]]*)\]", text)
    }
    attributes = {
        owner: tuple(re.findall(r"(\w+)\??:", body))
        for owner, body in re.findall(r"(?:entity|type) (\w+) = \{([^}]*)\}", text)
    }
    actions = [name.strip() for names in re.findall(r"action ([\w, ]+) appliesTo", text) for name in names.split(",")]
    entities = tuple(re.findall(r"entity (\w+)", text))
    return Vocabulary(tuple(actions), entities, values, attributes)


def diagnose_syntax(statement: Statement, parse: Callable[[str], str | None]) -> Diagnosis:
    """Explain a statement that does not parse. `parse` gives the parser's message for a text, None when it is fine."""
    problem = parse(statement.text) or "not a policy"
    culprit = _first_wrong(statement, parse)
    if culprit is not None:
        token = statement.tokens[culprit]
        return Diagnosis(token.line, f"unexpected {token.text!r}", tuple(_allowed_at(statement, culprit, parse)))
    if problem == _OPEN_ENDED:
        count = len(statement.tokens)
        return Diagnosis(
            statement.tokens[-1].line, "the policy has no end", tuple(_allowed_at(statement, count, parse))
        )
    allowed = next((names for cause, names in _NAMED_CAUSES.items() if cause in problem), ())
    named = problem.rsplit(": ", 1)[-1] if ": " in problem else ""
    return Diagnosis(_find_line(statement, [*_quoted(problem), named]), problem, _nearest(named, allowed))


def diagnose_names(statement: Statement, problems: list[str], vocabulary: Vocabulary) -> Diagnosis:
    """Explain a statement that parses but does not fit the schema. `problems` are the validator's messages."""
    problems = sorted(re.sub(r"^for policy `\w+`[,:] ", "", problem) for problem in problems)
    # The scope message follows from any wrong name in the scope and says less.
    problem = next((text for text in problems if "applicable action" not in text), problems[0])
    names = _quoted(problem)
    last = statement.tokens[-1].line
    if not names and last > statement.line:
        problem = f"{problem} (the policy ends in line {last})"
    allowed = _allowed_names(problem, vocabulary)
    wrong = re.findall(r"\w+", names[0])[-1] if names else ""
    return Diagnosis(_find_line(statement, names), problem, _nearest(wrong, allowed))


def _allowed_names(problem: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    if "unrecognized action" in problem:
        return tuple(f'Action::"{name}"' for name in vocabulary.actions)
    if "unrecognized entity type" in problem:
        return vocabulary.entities
    if match := re.search(r"entity `(\w+)::", problem):
        return vocabulary.values.get(match[1], ())
    if match := re.search(r"on entity type `(\w+)`", problem):
        return vocabulary.attributes.get(match[1], ())
    if "in context" in problem:
        return vocabulary.context
    return ()


def _first_wrong(statement: Statement, parse: Callable[[str], str | None]) -> int | None:
    """The first token that no continuation could save: the parser accepts every shorter prefix as unfinished."""
    for count in range(1, len(statement.tokens) + 1):
        problem = parse(statement.prefix(count))
        if problem is None or problem == _OPEN_ENDED:
            continue
        if count == len(statement.tokens) and not problem.startswith(("unexpected token", "invalid token")):
            return None
        # The parser skips what it could not use and may only say so later, but by name.
        named = next(iter(_quoted(problem)), "") if problem.startswith("unexpected token") else ""
        earlier = (place for place in range(count - 1, -1, -1) if statement.tokens[place].text == named)
        return next(earlier, count - 1)
    return None


def _allowed_at(statement: Statement, count: int, parse: Callable[[str], str | None]) -> Iterator[str]:
    """Every candidate that the parser would take after the first `count` tokens."""
    before = statement.prefix(count)
    for candidate in _CANDIDATES:
        if parse(f"{before} {candidate}") in (None, _OPEN_ENDED):
            yield candidate


def _quoted(problem: str) -> list[str]:
    return [a or b for a, b in _QUOTED.findall(problem)]


def _find_line(statement: Statement, names: list[str]) -> int:
    """The line of the first token that a message names."""
    for name in names:
        for part in reversed(_NAME.findall(name)):
            token = _find(statement.tokens, part)
            if token is not None:
                return token.line
    return statement.line


def _find(tokens: tuple[Token, ...], part: str) -> Token | None:
    return next((token for token in tokens if token.text.strip('"') == part), None)


def _nearest(wrong: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """`allowed` with the most similar name first."""
    similar = difflib.get_close_matches(wrong, [re.sub(r'^Action::"(.*)"$', r"\1", name) for name in allowed], n=1)
    first = [name for name in allowed if similar and similar[0] in (name, name[9:-1])]
    return (*first, *(name for name in allowed if name not in first))
