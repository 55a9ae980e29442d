"""A policy file, read and checked whole: what cannot be understood exactly is an error with file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import cedarpy

from corral.errors import ConfigError
from corral.policy.diagnosis import (
    ANNOTATIONS,
    Diagnosis,
    Vocabulary,
    diagnose_names,
    diagnose_syntax,
    parse_vocabulary,
)
from corral.policy.syntax import Statement, parse_statements

MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class PolicyLayer:
    """One file of rules. A workspace's own file is `forbids_only`: what nobody trusts may tighten, never loosen."""

    name: str
    path: Path
    forbids_only: bool = False


@dataclass(frozen=True)
class Rule:
    """One policy of a layer, checked against the schema."""

    id: str  # layer/name
    effect: Literal["permit", "forbid"]
    reason: str
    hint: str
    path: Path
    line: int
    body: dict[str, Any]  # Cedar's own JSON form


class PolicySchema:
    """The shipped schema, parsed once."""

    def __init__(self, path: Path) -> None:
        self.text = _read(path)
        try:
            self.handle = cedarpy.Schema.from_str(self.text)
        except ValueError as error:
            raise ConfigError(f"policy schema {str(path)!r} cannot be used: {error}") from error
        self.vocabulary: Vocabulary = parse_vocabulary(self.text)


def load_layer(layer: PolicyLayer, schema: PolicySchema) -> tuple[list[Rule], bytes]:
    """The rules of one file, and the bytes they came from. Raises ConfigError naming file, line, what is allowed."""
    source = _read(layer.path)
    rules: dict[str, Rule] = {}
    for statement in parse_statements(source):
        rule = _load_rule(layer, statement, schema)
        if rule.id in rules:
            message = f"the id {rule.id!r} is used twice, first in line {rules[rule.id].line}"
            _refuse(layer.path, Diagnosis(rule.line, message, ("an id of its own",)))
        rules[rule.id] = rule
    return list(rules.values()), source.encode()


def _load_rule(layer: PolicyLayer, statement: Statement, schema: PolicySchema) -> Rule:
    if _parse_problem(statement.text) is not None:
        _refuse(layer.path, diagnose_syntax(statement, _parse_problem))
    document = json.loads(cedarpy.policies_to_json_str(statement.text))
    if document["templates"]:
        _refuse(layer.path, Diagnosis(statement.line, "templates are not supported", ("a policy without ?slots",)))
    result = cedarpy.validate_policies(statement.text, schema.handle)
    if not result.validation_passed:
        problems = [error.error for error in result.errors]
        _refuse(layer.path, diagnose_names(statement, problems, schema.vocabulary))
    (body,) = document["staticPolicies"].values()
    _check_tested_attributes(layer.path, statement, body, schema.vocabulary)
    annotations = _check_annotations(layer.path, statement, body)
    if layer.forbids_only and body["effect"] != "forbid":
        # SECURITY: a repository's own policy must not grant; test_workspace_layer_may_only_forbid
        _refuse(layer.path, Diagnosis(statement.line, "a workspace's own policy may not permit", ("forbid",)))
    return Rule(
        id=f"{layer.name}/{annotations['id']}",
        effect=body["effect"],
        reason=annotations.get("reason") or "",
        hint=annotations.get("hint") or "",
        path=layer.path,
        line=statement.line,
        body=body,
    )


def _check_annotations(path: Path, statement: Statement, body: dict[str, Any]) -> dict[str, str]:
    annotations: dict[str, str] = body.get("annotations", {})
    for name in annotations:
        if name not in ANNOTATIONS:
            line = next((token.line for token in statement.tokens if token.text == name), statement.line)
            _refuse(path, Diagnosis(line, f"unknown annotation '@{name}'", tuple(f"@{known}" for known in ANNOTATIONS)))
    if not annotations.get("id"):
        _refuse(path, Diagnosis(statement.line, "the policy has no name", ('@id("...")',)))
    return annotations


def _check_tested_attributes(path: Path, statement: Statement, body: Any, vocabulary: Vocabulary) -> None:
    """`x has nmae` is no error to Cedar, only always false: a forbid with that typo would never fire."""
    known = vocabulary.all_attributes
    for name in _tested_attributes(body):
        if name not in known:
            line = next((token.line for token in statement.tokens if token.text.strip('"') == name), statement.line)
            _refuse(path, Diagnosis(line, f"unknown attribute {name!r}", known))


def _tested_attributes(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _tested_attributes(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "has" and isinstance(value, dict) and isinstance(value.get("attr"), str):
                yield value["attr"]
            yield from _tested_attributes(value)


def _parse_problem(text: str) -> str | None:
    try:
        cedarpy.PolicySet.from_str(text)
    except ValueError as error:
        return str(error)
    return None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise ConfigError(f"policy file {str(path)!r} is larger than {MAX_FILE_BYTES} bytes")
        return raw.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"policy file {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"policy file {str(path)!r}, line {line}: not UTF-8 text") from error


def _refuse(path: Path, diagnosis: Diagnosis) -> NoReturn:
    hint = f"allowed there: {', '.join(diagnosis.allowed)}" if diagnosis.allowed else None
    raise ConfigError(f"policy file {str(path)!r}, line {diagnosis.line}: {diagnosis.problem}", hint=hint)
