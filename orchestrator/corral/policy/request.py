"""A tool call as policy sees it: action, targets, facts. Only the spec says which argument is a path or a command."""

from __future__ import annotations

import posixpath
import re

from corral.policy.command import parse_command
from corral.schema.policy import Action, PathTarget, PolicyRequest, PolicySession, Target, ToolTarget, Zone
from corral.schema.tools import ArgumentRole, ToolCall, ToolKind, ToolSpec
from corral_protocol.name import decode_name

_FILE_KINDS = (ToolKind.READ, ToolKind.WRITE, ToolKind.DELETE)
_PATCH_HEADER = re.compile(r"\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)")
_GIT_MOVE = re.compile(r"(?:rename|copy) (?:from|to) (.+)")
_GIT_HEADER = re.compile(r"diff --git (.+)")
_QUOTED_BYTE = re.compile(r'\\([0-7]{3}|[abtnvfr"\\])')
_NAMED_BYTES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


def build_request(
    spec: ToolSpec,
    call: ToolCall,
    session: PolicySession,
    *,
    mount_point: str = "/workspace",
    approved: bool = False,
    checkpointed: bool = False,
) -> PolicyRequest:
    """The question to ask about one validated call."""
    paths: list[str] = []
    commands: list[str] = []
    for name, role in spec.roles.items():
        value = call.arguments.get(name)
        if not isinstance(value, str):
            continue
        if role is ArgumentRole.PATH:
            paths.append(value)
        elif role is ArgumentRole.PATCH:
            paths += find_patch_paths(value)
        else:
            commands.append(value)
    targets: tuple[Target, ...] = (ToolTarget(name=spec.name),)
    if spec.kind in _FILE_KINDS:
        # A file tool without a path works on the workspace as a whole.
        found = [normalise_path(path, mount_point) for path in paths or [mount_point]]
        targets = tuple(dict.fromkeys(found))
    # SECURITY: of several command lines each counts; test_a_second_command_cannot_hide_behind_the_first
    command = parse_command("\n".join(commands))
    return PolicyRequest(
        session=session,
        action=Action(spec.kind.value),
        targets=targets,
        tool=spec.name,
        side_effect=spec.side_effect,
        permission=spec.permission,
        command=command if spec.kind is ToolKind.SHELL else None,
        approved=approved,
        checkpointed=checkpointed,
    )


def normalise_path(path: str, mount_point: str) -> PathTarget:
    """Absolute and free of `.`, `..` and doubled slashes. A name that is no name lies outside."""
    try:
        # SECURITY: the wire has a second spelling for a name; both must meet the same rules;
        # test_the_wire_spelling_of_a_name_meets_the_same_rule
        text = decode_name(path).decode("utf-8", "backslashreplace")
    except ValueError:
        return PathTarget(path="", zone=Zone.OUTSIDE)
    absolute = posixpath.normpath(posixpath.join(mount_point, text))
    if absolute.startswith("//"):  # POSIX keeps exactly two; the kernel does not
        absolute = absolute[1:]
    for top, zone in ((mount_point, Zone.WORKSPACE), ("/tmp", Zone.TMP), ("/outputs", Zone.OUTPUTS)):
        if absolute == top or absolute.startswith(f"{top}/"):
            return PathTarget(path=absolute, zone=zone, root=absolute == top)
    return PathTarget(path=absolute, zone=Zone.OUTSIDE, root=absolute == "/")


def find_patch_paths(patch: str) -> list[str]:
    """Every path a patch names, in either format. Rather one too many: a path too many can only be stricter."""
    lines = patch.splitlines()
    if any(line.strip() == "*** Begin Patch" for line in lines):
        return [match[1].strip() for line in lines if (match := _PATCH_HEADER.match(line.strip()))]
    paths: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("--- ") and following.startswith("+++ "):
            # A pair: a removed line that begins with `-- ` has no `+++ ` behind it.
            paths += [_strip_prefix(_unquote(text[4:].split("\t")[0])) for text in (line, following)]
        elif match := _GIT_MOVE.match(line):
            paths.append(_unquote(match[1]))
        elif match := _GIT_HEADER.match(line):
            paths += _split_git_header(match[1])
    return [path for path in dict.fromkeys(paths) if path not in ("/dev/null", "")]


def _split_git_header(text: str) -> list[str]:
    """Both names of `diff --git`, when they are equal: only then are they told nowhere else."""
    middle = len(text) // 2
    old, new = _unquote(text[:middle]), _unquote(text[middle + 1 :])
    return [_strip_prefix(old), _strip_prefix(new)] if text[middle : middle + 1] == " " else []


def _strip_prefix(path: str) -> str:
    return path[2:] if path.startswith(("a/", "b/")) else path


def _unquote(name: str) -> str:
    """Git's C-style quoting undone."""
    name = name.strip()
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return name
    raw = bytearray()
    position = 1
    for match in _QUOTED_BYTE.finditer(name, 1, len(name) - 1):
        raw += name[position : match.start()].encode("utf-8", "surrogatepass")
        code = match[1]
        raw.append(_NAMED_BYTES[code] if code in _NAMED_BYTES else int(code, 8) & 0xFF)
        position = match.end()
    raw += name[position:-1].encode("utf-8", "surrogatepass")
    return raw.decode("utf-8", "backslashreplace")
