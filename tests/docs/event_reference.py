"""Writes docs/reference/events.md from the models of corral.schema.events: `python tests/docs/event_reference.py`."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from corral.schema import events, resources

TARGET = Path(__file__).parents[2] / "docs" / "reference" / "events.md"

HEAD = """\
# Events of the record

Written by `python tests/docs/event_reference.py` from `corral.schema.events`; a test holds it equal.

A run's record is `record.jsonl` in the run's directory: one event a line, ASCII only, append-only, readable by its
owner only. Each line has exactly this form and order, without spaces:

```
{"v":1,"seq":7,"at":"2026-11-30T14:30:01.123456789Z","prev":"<64 hex>","kind":"tool.started",\
"source":"orchestrator","payload":{…},"hash":"<64 hex>"}
```

| field | |
|---|---|
| `v` | version of the format: 1 |
| `seq` | 1, 2, 3, … without a gap |
| `at` | UTC, with nanoseconds |
| `prev` | `hash` of the line before; 64 zeros in the first |
| `kind` | one of the kinds below |
| `source` | whose word it is: `orchestrator`, or `box` for a claim of the untrusted side |
| `payload` | as below; keys sorted |
| `hash` | SHA-256, in hex, of the line's bytes before `,"hash"` followed by `}` |

To check a line without corral: `printf '%s}' "${line%,\\"hash\\":*}" | sha256sum`. A changed, removed, inserted or
reordered line breaks the chain; `corral log verify` names it. That whole lines were removed at the end shows as a
missing `run.finished`, or against a head (sequence and hash) kept elsewhere.

Over-long text is cut to head and tail around `…[cut: N characters, sha256 …]…`; a byte that was no UTF-8 is written
`\\xNN`, half a surrogate pair U+FFFD. A line is at most 4 MiB.
"""


def describe_fields(model: type[BaseModel]) -> dict[str, tuple[str, str]]:
    """Name to (type, text) for the fields of one class, as its source has them."""
    tree = ast.parse(inspect.getsource(model)).body[0]
    assert isinstance(tree, ast.ClassDef)
    out: dict[str, tuple[str, str]] = {}
    name = ""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id if node.target.id in model.model_fields else ""
            if name:
                out[name] = (ast.unparse(node.annotation), "")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
            out[name] = (out[name][0], " ".join(str(node.value.value).split()))
    return out


def render_model(title: str, model: type[BaseModel]) -> str:
    doc = " ".join((inspect.getdoc(model) or "").split()) if "__doc__" in vars(model) and model.__doc__ else ""
    source = getattr(model, "source", None)
    if source is events.Source.BOX:
        doc += " Usually the word of the box."
    rows = []
    for name, (kind, text) in describe_fields(model).items():
        required = "" if model.model_fields[name].is_required() else " (optional)"
        readable = kind.replace("|", "or").replace("BeforeValidator", "").split("Annotated[")[-1].split(", (")[0]
        rows.append(f"| `{name}` | {readable}{required} | {text} |")
    return "\n".join([f"## {title}", "", doc, "", "| field | type | |", "|---|---|---|", *rows, ""])


def render_reference() -> str:
    parts = [HEAD]
    for kind in events.EventKind:
        parts.append(render_model(f"`{kind.value}`", events.PAYLOADS[kind]))
    parts.append("# Parts used above\n")
    shared: list[Any] = [
        events.Actor,
        events.Box,
        events.Tokens,
        events.SeenMessage,
        events.ProposedCall,
        events.ErrorFacts,
        events.ChangedFile,
        events.EndedProcess,
        resources.CallResources,
        resources.RunResources,
        resources.BoxResources,
        resources.OwnResources,
    ]
    parts += [render_model(model.__name__, model) for model in shared]
    parts.append(
        "Types: `Name` is text of at most 512 characters, `Line` 4,096, `Block` 65,536, `Body` 1,048,576; `Lines` are"
        " at most 1,000 of them; `Facts` and `Arguments` are JSON objects with each text bounded likewise; `Digest` is"
        " a SHA-256 in hex or empty.\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(render_reference())
