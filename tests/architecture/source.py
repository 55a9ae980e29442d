"""Reads our own source for the tests beside it. Nothing here is imported from corral: the source is the subject."""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "corral": ROOT / "orchestrator" / "corral",
    "corral_protocol": ROOT / "toolbox" / "corral_protocol",
    "corral_toolbox": ROOT / "toolbox" / "corral_toolbox",
    "corral_runtime": ROOT / "toolbox" / "corral_runtime",
}


@dataclass(frozen=True)
class Module:
    """One source file: `name` is its import name, `path` relative to the repository."""

    name: str
    file: Path

    @property
    def path(self) -> str:
        return self.file.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.file.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def code_lines(self) -> set[int]:
        """Numbers of the lines that hold code: no blank line, comment or docstring."""
        skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in skipped and token.type != tokenize.ENDMARKER:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return lines

    def imports(self) -> Iterator[tuple[int, str]]:
        """Every imported module with its line, wherever the import stands."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.path}:{node.lineno}: imports are absolute"
                yield node.lineno, node.module or ""
                # `from corral import app` names a module in its second half.
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Every function with its number of code lines, those of inner functions included."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                yield node.name, len(self.code_lines.intersection(span))


@lru_cache
def load_modules() -> tuple[Module, ...]:
    """All modules of the three packages, and the toolbox's entry."""
    found = [Module("__main__", ROOT / "toolbox" / "__main__.py")]
    for package, folder in PACKAGES.items():
        for file in sorted(folder.rglob("*.py")):
            parts = (package, *file.relative_to(folder).with_suffix("").parts)
            found.append(Module(".".join(part for part in parts if part != "__init__"), file))
    return tuple(found)


def load_tracked_files() -> list[Path]:
    """What is, or is about to be, in the repository."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]
