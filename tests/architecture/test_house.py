"""Names, licences, and what must not stand in the repository."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import metadata

from packaging.requirements import Requirement
from tests.architecture.source import ROOT, Module, load_modules, load_tracked_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Put together here, or this file would be the first find.
HOSTS = [a + b for a, b in [("docker.", "io/"), ("pypi", ".org"), ("python", "hosted.org"), ("ghcr", ".io"),
         ("quay", ".io"), ("gcr", ".io"), ("deb.debian", ".org"), ("registry", "-1."), ("npmjs", ".org")]]  # fmt: skip
PROFILES = ROOT / "policies" / "network"
MACHINE = re.compile("|".join([r"(?<![\w.])/wo" + r"rk/(main|shared)", "/ro" + r"ot/(?!\.)"]))
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".sh", ".txt", ".json", ".cedar", ".cedarschema", ".lock", ""}


def test_every_public_name_of_a_room_is_listed_and_exists() -> None:
    wrong = []
    for module in load_modules():
        if module.file.name != "__init__.py":
            continue
        listed, bound = _listed_names(module), _bound_names(module)
        if bound and listed is None:
            wrong.append(f"{module.path}: no __all__")
        wrong += [f"{module.path}: __all__ names {name}, which is not there" for name in set(listed or ()) - bound]
    assert "\n".join(wrong) == ""


def _listed_names(module: Module) -> list[str] | None:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def _bound_names(module: Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if name != "annotations" and not name.startswith("_")}


def test_nothing_we_need_is_under_the_gpl() -> None:
    found = {name: licence for name in _needed(PROJECT["dependencies"]) if "GPL" in (licence := _licence(name)).upper()}
    assert found == {}


def _needed(requirements: list[str]) -> set[str]:
    """The distributions that `requirements` bring, by installed metadata."""
    todo, seen = list(requirements), set[str]()
    while todo:
        requirement = Requirement(todo.pop())
        if requirement.name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(requirement.name)
        todo += metadata.distribution(requirement.name).requires or []
    return seen


def _licence(name: str) -> str:
    data = metadata.metadata(name)
    classifiers = [line for line in data.get_all("Classifier") or [] if line.startswith("License")]
    return " ".join(filter(None, [data.get("License-Expression"), *classifiers])) or (data.get("License") or "")[:200]


def test_the_lock_fits_the_project() -> None:
    """Each direct dependency is locked to a version the project takes, with a hash, and no index is named."""
    wanted = {
        "requirements.lock": PROJECT["dependencies"],
        "requirements-dev.lock": PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"],
    }
    wrong = []
    for name, requirements in wanted.items():
        text = (ROOT / name).read_text()
        pins = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))
        wrong += [
            f"{name}: {r}" for r in map(Requirement, requirements) if not r.specifier.contains(pins.get(r.name, ""))
        ]
        wrong += [f"{name}: {line}" for line in text.splitlines() if "://" in line or "index" in line]
        wrong += [f"{name}: {pin} has no hash" for pin in pins if f"{pin}=={pins[pin]}" in text.split("--hash")[-1]]
    assert "\n".join(wrong) == ""


def test_no_machine_and_no_registry_is_named() -> None:
    wrong = []
    for file in load_tracked_files():
        if file.parent == PROFILES:  # what a user asks for by name; nothing of ours goes there by itself
            continue
        if file.suffix not in TEXT_SUFFIXES or file.name == "LICENSE" or file.stat().st_size > 1 << 20:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if any(host in line for host in HOSTS) or MACHINE.search(line):
                wrong.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert "\n".join(wrong) == ""


def test_every_security_mark_names_a_test_that_exists() -> None:
    files = list((ROOT / "tests").rglob("test_*.py"))
    known = {file.stem for file in files}.union(*(re.findall(r"def (test_\w+)", file.read_text()) for file in files))
    wrong = []
    for file in load_tracked_files():
        if file.suffix not in {".py", ".sh"} or "tests" in file.parts:
            continue
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            if "# SECURITY:" not in line:
                continue
            remark = line
            for following in lines[number + 1 : number + 5]:
                if not following.strip().startswith("#"):
                    break
                remark += following
            if not set(re.findall(r"test_\w+", remark)) & known:
                wrong.append(f"{file.relative_to(ROOT)}:{number + 1}: {line.strip()[:110]}")
    assert "\n".join(wrong) == ""
