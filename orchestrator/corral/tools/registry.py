"""Which tools there are for one session: unique names, and nothing a session may not use."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from corral.errors import ConfigError
from corral.schema.policy import Mode
from corral.schema.tools import Permission, SideEffect, ToolSpec
from corral.tools.arguments import check_schema
from corral.tools.base import Tool

_LEVELS = list(Permission)  # lowest first

# What models call these tools elsewhere. Only ever a suggestion: their arguments differ, so a call is not guessed.
_FAMILIAR = {
    "bash": "shell",
    "cmd": "shell",
    "terminal": "shell",
    "execute_command": "shell",
    "cat": "read_file",
    "open_file": "read_file",
    "view": "read_file",
    "create_file": "write_file",
    "str_replace": "edit_file",
    "str_replace_editor": "edit_file",
    "grep": "search",
    "find": "list_files",
    "ls": "list_files",
    "submit": "finish",
    "done": "finish",
}


class ToolRegistry:
    """An immutable set of tools, in a fixed order."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Raises ConfigError for a name used twice or a schema that cannot be held."""
        self._tools: dict[str, Tool] = {}
        self._names: dict[str, Tool] = {}
        for tool in tools:
            self._add(tool)

    def select(
        self, *, permission: Permission = Permission.ADMIN, mode: Mode = Mode.BUILD, names: Iterable[str] | None = None
    ) -> ToolRegistry:
        """The tools one session has. Above its permission, or writing in plan mode, they do not exist."""
        wanted = None if names is None else set(names)
        return ToolRegistry(
            tool
            for tool in self._tools.values()
            if _LEVELS.index(tool.spec.permission) <= _LEVELS.index(permission)
            and (mode is Mode.BUILD or tool.spec.side_effect is SideEffect.READ_ONLY)
            and (wanted is None or tool.spec.name in wanted)
        )

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def find(self, name: str) -> Tool | None:
        """By name or alias; only a `functions.` prefix, letter case and spaces around are forgiven."""
        plain = name.strip().lower().removeprefix("functions.")
        return self._names.get(plain)

    def nearest(self, name: str) -> str:
        """The tool most likely meant by a wrong name, or ''."""
        plain = name.strip().lower().removeprefix("functions.")
        familiar = _FAMILIAR.get(plain, "")
        if familiar in self._tools:
            return familiar
        close = difflib.get_close_matches(plain[:64], self._names, n=1, cutoff=0.5)
        return self._names[close[0]].spec.name if close else ""

    def _add(self, tool: Tool) -> None:
        spec = tool.spec
        for name in (spec.name, *spec.aliases):
            if name in self._names:
                raise ConfigError(f"two tools are called {name!r}", hint="names and aliases must differ")
            self._names[name] = tool
        check_schema(spec.parameters, f"tool {spec.name!r}")
        unknown = sorted(set(spec.roles) - set(spec.parameters.get("properties", {})))
        if unknown:
            raise ConfigError(f"tool {spec.name!r} gives a role to {unknown[0]!r}, which is no argument of it")
        self._tools[spec.name] = tool
