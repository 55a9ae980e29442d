"""Imports go downwards only, and the raw doors stand in one place each."""

from __future__ import annotations

import ast
import sys

import pytest
from tests.architecture.source import Module, load_modules

# From the ground up. A room imports from lower floors only, never from a neighbour on its own.
FLOORS = (
    ("errors", "schema", "resource", "redact"),
    ("llm", "context", "policy", "record", "store", "skills", "telemetry", "sandbox"),
    ("patch", "tools"),
    ("agent",),
    ("config",),
    ("app",),
    ("api", "demo", "doctor", "batch", "bot", "server", "testing"),
    ("cli",),
)
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
ALLOWED_ASIDE = {("schema", "errors"), ("errors", "schema")}
# The agent is handed these by app: it knows their contracts only.
KEPT_FROM_AGENT = ("corral.policy", "corral.sandbox.docker", "corral.sandbox.engine", "corral.sandbox.image")

# Raw door -> path prefixes that may open it.
DOORS = {
    "docker": ("orchestrator/corral/sandbox/",),
    "openai": ("orchestrator/corral/llm/openai",),
    "fastapi": ("orchestrator/corral/server/",),
    "subprocess": (
        "orchestrator/corral/patch/git.py",
        "orchestrator/corral/sandbox/image/base.py",
        "orchestrator/corral/sandbox/janitor",
        "orchestrator/corral/sandbox/reach/ssh",
        "orchestrator/corral/agent/hook.py",
        "orchestrator/corral/app/secret.py",
    ),
    "pickle": (),
    "marshal": (),
    "shelve": (),
}
BANNED_CALLS = {"eval", "exec", "compile", "__import__"}
BANNED_METHODS = {("os", "system"), ("os", "popen"), ("yaml", "load"), ("tar", "extractall")}
# Where any error at all may be caught: around a tool run, around a session, in the command's main; and where a thread
# hands its error, whatever it is, to the task that waits for it.
CATCH_ALL = (
    "orchestrator/corral/tools/executor.py",
    "orchestrator/corral/agent/",
    "orchestrator/corral/cli/main.py",
    "orchestrator/corral/sandbox/engine.py",
)

MODULES = load_modules()
HOST = [module for module in MODULES if module.path.startswith("orchestrator/")]
BOX = [module for module in MODULES if module.path.startswith("toolbox/")]


def room_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if parts[0] == "corral" and len(parts) > 1 else ""


def test_every_room_has_its_floor() -> None:
    assert {room_of(module.name) for module in HOST} - {""} - set(FLOOR) == set()


def test_imports_go_downwards_only() -> None:
    wrong = []
    for module in HOST:
        here = room_of(module.name)
        for line, target in module.imports():
            there = room_of(target)
            if not here or there not in FLOOR or here == there or (here, there) in ALLOWED_ASIDE:
                continue
            if FLOOR[there] >= FLOOR[here]:
                wrong.append(f"{module.path}:{line}: {here} imports {target}")
    assert "\n".join(sorted(set(wrong))) == ""


def test_the_agent_is_handed_policy_and_engine() -> None:
    wrong = [
        f"{module.path}:{line}: {target}"
        for module in HOST
        if room_of(module.name) == "agent"
        for line, target in module.imports()
        if target.startswith(KEPT_FROM_AGENT)
    ]
    assert "\n".join(wrong) == ""


def test_only_sandbox_and_its_users_know_the_wire() -> None:
    """The toolbox itself is never imported on the host; the fake box, which is no boundary, is made of it."""
    wrong = [
        f"{module.path}:{line}: {target}"
        for module in HOST
        for line, target in module.imports()
        if target.split(".")[0] == "corral_toolbox" and module.path != "orchestrator/corral/sandbox/fake.py"
    ]
    assert "\n".join(wrong) == ""


def test_the_toolbox_needs_the_standard_library_only() -> None:
    # `_sha2` is the standard library's from 3.12 on; before, it is not there and an import falls back.
    own = {"corral_protocol", "corral_toolbox", "corral_runtime", "_sha2"}
    wrong = [
        f"{module.path}:{line}: {target}"
        for module in BOX
        for line, target in module.imports()
        if (top := target.split(".")[0]) not in sys.stdlib_module_names and top not in own
    ]
    assert "\n".join(wrong) == ""


def test_the_protocol_knows_neither_side() -> None:
    wrong = [
        f"{module.path}:{line}: {target}"
        for module in BOX
        if module.name.startswith("corral_protocol")
        for line, target in module.imports()
        if target.split(".")[0] in ("corral", "corral_toolbox")
    ]
    assert "\n".join(wrong) == ""


@pytest.mark.parametrize("door", sorted(DOORS))
def test_a_raw_door_stands_in_one_place(door: str) -> None:
    wrong = [
        f"{module.path}:{line}"
        for module in HOST
        for line, target in module.imports()
        if target.split(".")[0] == door and not module.path.startswith(DOORS[door] or ("-",))
    ]
    assert "\n".join(sorted(set(wrong))) == ""


def test_nothing_runs_text_or_unpacks_blindly() -> None:
    wrong = []
    for module in MODULES:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            if isinstance(called, ast.Name) and called.id in BANNED_CALLS:
                wrong.append(f"{module.path}:{node.lineno}: {called.id}()")
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                pair = (called.value.id, called.attr)
                if pair in BANNED_METHODS or called.attr == "extractall":
                    wrong.append(f"{module.path}:{node.lineno}: {'.'.join(pair)}()")
    assert "\n".join(wrong) == ""


def test_any_error_is_caught_in_three_places_only() -> None:
    """Elsewhere a broad handler must end in a bare `raise`: it tidies up and hides nothing."""
    wrong = []
    for module in HOST:
        if module.path.startswith(CATCH_ALL):
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _raises_again(node):
                wrong.append(f"{module.path}:{node.lineno}")
    assert "\n".join(wrong) == ""


def _is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or getattr(kind, "id", "") in ("Exception", "BaseException") for kind in kinds)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_an_import_inside_a_function_says_why() -> None:
    assert "\n".join(place for module in HOST for place in _unexplained_late_imports(module)) == ""


def _unexplained_late_imports(module: Module) -> list[str]:
    lines = module.text.splitlines()
    found = []
    for function in ast.walk(module.tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = sorted(
            (node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)),
            key=lambda node: node.lineno,
        )
        # One remark covers a block of imports.
        if inside and not any("# late" in line for line in lines[inside[0].lineno - 2 : inside[-1].end_lineno]):
            found.append(f"{module.path}:{inside[0].lineno}")
    return found
