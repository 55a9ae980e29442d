"""What a reviewer should see before a patch leaves: a flat list of checks, each giving findings.

The checks read the patch itself, so export and apply judge the same bytes. Policy decides on findings; `ask` needs a
person's yes, `block` is not applied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from corral.patch.name import fold_case, hidden_character, portability_problem
from corral.patch.parse import FilePatch, ParsedPatch, parse_patch
from corral.patch.secret import find_secrets
from corral.patch.tree import list_names, open_parent
from corral.redact import Redactor
from corral.schema.patch import Finding, Severity
from corral.schema.visible import visible
from corral_protocol.name import encode_name

LARGE_FILES = 1_000
LARGE_BYTES = 10 << 20
MAX_FINDINGS = 1_000  # of one check; the rest is told as a number

# What runs by itself on a developer's or CI machine once the patch is applied: pattern of the path, and who runs it.
_RUNS_BY_ITSELF: tuple[tuple[str, str], ...] = (
    (".github/workflows/*", "GitHub Actions"),
    (".github/actions/*", "GitHub Actions"),
    (".gitlab-ci.yml", "GitLab CI"),
    (".gitea/workflows/*", "Gitea Actions"),
    (".forgejo/workflows/*", "Forgejo Actions"),
    (".circleci/*", "CircleCI"),
    (".buildkite/*", "Buildkite"),
    ("azure-pipelines*.yml", "Azure Pipelines"),
    ("bitbucket-pipelines.yml", "Bitbucket Pipelines"),
    (".travis.yml", "Travis CI"),
    ("appveyor.yml", "AppVeyor"),
    ("jenkinsfile*", "Jenkins"),
    ("*/.gitattributes", "git, filters and merge drivers"),
    ("*/.gitmodules", "git, submodules"),
    ("*/.gitconfig", "git"),
    ("*/.lfsconfig", "git-lfs"),
    (".husky/*", "git hooks by husky"),
    (".githooks/*", "git hooks"),
    ("*/.pre-commit-config.yaml", "pre-commit"),
    ("lefthook.y*ml", "git hooks by lefthook"),
    ("*/.envrc", "direnv, on entering the directory"),
    (".vscode/*", "the editor"),
    (".idea/*", "the editor"),
    (".devcontainer/*", "the editor"),
    ("*/.mcp.json", "coding agents"),
    (".claude/*", "coding agents"),
    (".corral/*", "corral"),
    (".cursor/*", "coding agents"),
    ("*.pth", "Python, at every start"),
    ("*/sitecustomize.py", "Python, at every start"),
    ("*/usercustomize.py", "Python, at every start"),
    ("*/.npmrc", "npm"),
    ("*/.yarnrc*", "yarn"),
    ("*/.pypirc", "Python packaging"),
)
_RUNS_ON_BUILD: tuple[tuple[str, str], ...] = (
    ("*/makefile", "make"),
    ("*/gnumakefile", "make"),
    ("*/justfile", "just"),
    ("*/package.json", "npm scripts"),
    ("*/setup.py", "pip"),
    ("*/setup.cfg", "pip"),
    ("*/pyproject.toml", "pip"),
    ("*/conftest.py", "pytest"),
    ("*/build.rs", "cargo"),
    ("*/build.gradle*", "gradle"),
    ("*/pom.xml", "maven"),
    ("*/cmakelists.txt", "cmake"),
    ("*/dockerfile*", "docker build"),
    ("*/compose*.y*ml", "docker compose"),
)

Check = Callable[[ParsedPatch], Iterator[Finding]]


def check_patch(
    patch: bytes | ParsedPatch, workspace: Path | None = None, redactor: Redactor | None = None
) -> tuple[Finding, ...]:
    """All findings about a patch, the most severe first. Raises PatchInvalid for what is not a patch.

    With `workspace`, names are also compared with what stands there. `redactor` is the run's, which knows its secrets.
    """
    parsed = parse_patch(patch) if isinstance(patch, bytes) else patch
    order = list(Severity)
    checks: tuple[Check, ...] = (*_CHECKS, partial(_secrets, redactor=redactor or Redactor()))
    found = [finding for check in checks for finding in _bounded(check, parsed)]
    if workspace is not None:
        found += [finding for finding in check_collisions(parsed, workspace) if finding not in found]
    return tuple(sorted(found, key=lambda finding: -order.index(finding.severity)))


def _bounded(check: Check, patch: ParsedPatch) -> Iterator[Finding]:
    for count, finding in enumerate(check(patch)):
        if count == MAX_FINDINGS:
            text = f"more than {MAX_FINDINGS:,} findings of this kind; the rest is not listed"
            yield finding.model_copy(update={"text": text, "line": None})
            return
        yield finding


def _finding(kind: str, severity: Severity, path: bytes, text: str, line: int | None = None) -> Finding:
    return Finding(kind=kind, severity=severity, path=encode_name(path), line=line, text=text)


def _links(patch: ParsedPatch) -> Iterator[Finding]:
    """Symlinks that lead out of the workspace."""
    for file in patch.files:
        if file.new_path is not None and file.new_mode == 0o120000:
            target = added_link(patch, file)
            if target is None:
                yield _finding("link_unknown", Severity.ASK, file.path, "a symlink whose target cannot be told here")
            elif leaves_tree(file.path, target):
                yield _finding("link_leaves", Severity.BLOCK, file.path, f"symlink to {visible(target)}")


def added_link(patch: ParsedPatch, file: FilePatch) -> bytes | None:
    """The target a patch gives to a symlink; None when the patch does not say it in plain lines."""
    if len(file.hunks) != 1:
        return None
    lines = list(patch.lines(file.hunks[0]))
    kept = [line[1:] for line in lines if line[:1] in (b"+", b" ")]
    return b"\n".join(kept)


def leaves_tree(path: bytes, target: bytes) -> bool:
    """Whether a link at `path` leads out of the tree, by its text alone: where other links lead is not asked."""
    # SECURITY: a later write through such a link lands outside (test_blocks_symlink_that_leaves_the_workspace).
    if target.startswith(b"/"):
        return True
    depth = path.count(b"/")
    for part in target.split(b"/"):
        depth += {b"..": -1, b".": 0, b"": 0}.get(part, 1)
        if depth < 0:
            return True
    return False


def _runs_elsewhere(patch: ParsedPatch) -> Iterator[Finding]:
    """Files that some program of the developer or of CI runs."""
    for file in patch.files:
        path = file.new_path
        if path is None:
            continue
        if who := _match(path, _RUNS_BY_ITSELF):
            yield _finding("runs_on_host", Severity.ASK, path, f"is run by {who}")
        elif who := _match(path, _RUNS_ON_BUILD):
            yield _finding("runs_on_build", Severity.WARN, path, f"is run by {who}")


def _match(path: bytes, rules: tuple[tuple[str, str], ...]) -> str | None:
    text = fold_case(path)
    for pattern, who in rules:
        if fnmatchcase(text, pattern) or (pattern.startswith("*/") and fnmatchcase(text, pattern[2:])):
            return who
    return None


_FOUND = {"secret": Severity.ASK, "personal": Severity.WARN, "random": Severity.INFO}


def _secrets(patch: ParsedPatch, redactor: Redactor) -> Iterator[Finding]:
    """Secrets and personal data in added lines; what only looks random is mentioned."""
    for file in patch.files:
        for hunk in file.hunks:
            counted, number = hunk.start, hunk.new_start
            for offset, kind, text in find_secrets(patch.data, hunk.start, hunk.end, redactor):
                number, counted = number + _new_lines(patch.data, counted, offset), offset
                yield _finding(kind, _FOUND[kind], file.path, text, number)


def _new_lines(data: bytes, start: int, end: int) -> int:
    """How many lines of the new file lie between two line starts of a hunk."""
    lines = data.count(b"\n", start, end)
    others = data.count(b"\n-", start, end) + data.count(b"\n\\", start, end) + (data[start : start + 1] in b"-\\")
    return lines - others if end > start else 0


def _names(patch: ParsedPatch) -> Iterator[Finding]:
    """New names that other systems cannot hold, or that people cannot see."""
    for file in patch.files:
        path = file.new_path
        if path is None or path == file.old_path:
            continue
        for part in path.split(b"/"):
            if hidden := hidden_character(part):
                yield _finding("hidden_character", Severity.ASK, path, f"{hidden} in the name")
            elif problem := portability_problem(part):
                yield _finding("not_portable", Severity.WARN, path, problem)


def _collisions(patch: ParsedPatch) -> Iterator[Finding]:
    """Names of the patch that differ only in case or normalisation, directories included."""
    yield from _collide(spelled_paths(patch))


def spelled_paths(patch: ParsedPatch) -> dict[str, set[bytes]]:
    """Every path and parent the patch makes, by what a case-insensitive system makes of it."""
    spelled = defaultdict[str, set[bytes]](set)
    for file in patch.files:
        if file.new_path is not None:
            parts = file.new_path.split(b"/")
            for depth in range(1, len(parts) + 1):
                path = b"/".join(parts[:depth])
                spelled[fold_case(path)].add(path)
    return spelled


def check_collisions(patch: ParsedPatch, workspace: Path) -> tuple[Finding, ...]:
    """Names that collide with what stands in the workspace and is not removed by the patch."""
    removed = {file.old_path for file in patch.files if file.new_path != file.old_path}
    spelled = spelled_paths(patch)
    wanted = {path.rpartition(b"/")[2].lower() for paths in spelled.values() for path in paths}
    for parent in sorted({path.rpartition(b"/")[0] for paths in spelled.values() for path in paths}):
        # Most names are not worth folding.
        for name in [name for name in _names_in(workspace, parent) if name.lower() in wanted or not name.isascii()]:
            path = parent + b"/" + name if parent else name
            if path not in removed and fold_case(path) in spelled:
                spelled[fold_case(path)].add(path)
    return tuple(_collide(spelled))


def _names_in(workspace: Path, directory: bytes) -> list[bytes]:
    try:
        with open_parent(workspace, directory + b"/." if directory else b".") as (descriptor, _):
            return list_names(descriptor)
    except OSError:
        return []


def _collide(spelled: dict[str, set[bytes]]) -> Iterator[Finding]:
    for paths in spelled.values():
        if len(paths) > 1:
            first, *others = sorted(paths)
            text = "differs only in case from " + ", ".join(visible(path) for path in others)
            yield _finding("case_collision", Severity.WARN, first, text)


def _modes(patch: ParsedPatch) -> Iterator[Finding]:
    for file in patch.files:
        if file.new_mode == 0o100755 and file.new_path is not None and file.old_mode != 0o100755:
            yield _finding("executable", Severity.INFO, file.path, "becomes executable")


def _binaries(patch: ParsedPatch) -> Iterator[Finding]:
    for file in patch.files:
        if file.binary and file.new_path is not None:
            yield _finding("binary", Severity.INFO, file.path, "binary content, not shown as text")


def _size(patch: ParsedPatch) -> Iterator[Finding]:
    if len(patch.files) > LARGE_FILES or len(patch.data) > LARGE_BYTES:
        text = f"{len(patch.files):,} files, {len(patch.data):,} bytes: more than a person can review"
        yield _finding("large", Severity.WARN, patch.files[0].path, text)


_CHECKS: tuple[Check, ...] = (
    _links,
    _runs_elsewhere,
    _names,
    _collisions,
    _modes,
    _binaries,
    _size,
)
