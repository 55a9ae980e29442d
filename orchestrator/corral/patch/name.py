"""Rules about names: what git takes for `.git`, what other systems cannot hold.

Names are bytes. Both sides of the patch use these rules: the export leaves such paths out, apply refuses them.
"""

from __future__ import annotations

import unicodedata

MAX_PATH = 4000
"""Bytes of a path, below PATH_MAX (4,096) by room for a temporary name."""

MAX_DEPTH = 128
"""Components of a path. The walk holds two descriptors for each level: 256 of the usual 1,024."""

_TOOLBOX_TEMP = b".corral-tmp-"
"""How corral_toolbox.files.atomic names what it writes beside its target."""

# Code points that HFS+ ignores when it compares names: `.g<U+200C>it` is `.git` there.
_HFS_IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])
_NTFS_STEMS = frozenset({".git", "git~1"})
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10))}
)
_NOT_ON_WINDOWS = frozenset('<>:"|?*\\')


def is_git_component(part: bytes) -> bool:
    """Whether git, NTFS or HFS+ take this one name for `.git`.

    A superset of what `git apply` refuses: a backslash separates on Windows, `:` starts a stream, and trailing dots
    and spaces vanish there.
    """
    # SECURITY: a hook or config planted through a lookalike runs code (test_blocks_git_lookalikes).
    for piece in part.split(b"\\"):
        stem = piece.split(b":", 1)[0].decode("utf-8", "replace").translate(_HFS_IGNORED)
        if stem.rstrip(" .").lower() in _NTFS_STEMS:
            return True
    return False


def is_toolbox_temp(part: bytes) -> bool:
    """Whether this is a name that the box's file tools give what is not finished yet."""
    return part.startswith(_TOOLBOX_TEMP)


def has_git_component(path: bytes) -> bool:
    """Whether any component of a path is git's."""
    return any(is_git_component(part) for part in path.split(b"/"))


def is_gitmodules(part: bytes) -> bool:
    """Whether a name may be `.gitmodules` somewhere: git refuses it as a symlink."""
    for piece in part.split(b"\\"):
        stem = piece.split(b":", 1)[0].decode("utf-8", "replace").translate(_HFS_IGNORED).rstrip(" .").lower()
        if stem == ".gitmodules" or stem.startswith(("gitmod~", "gi7eb")):
            return True
    return False


def refuse_reason(path: bytes, *, link: bool = False) -> str | None:
    """Why a path must never be written, in words; None when it may be."""
    parts = path.split(b"/")
    # SECURITY: a crafted patch writes outside the tree (test_blocks_paths_that_leave_the_tree).
    if path.startswith(b"/"):
        return "absolute path"
    if b"\0" in path or any(part in (b"", b".", b"..") for part in parts):
        return "path with an empty, `.` or `..` component"
    if any(is_git_component(part) for part in parts):
        return "path into .git"
    if link and is_gitmodules(parts[-1]):
        return ".gitmodules as a symlink"
    if len(path) > MAX_PATH or len(parts) > MAX_DEPTH or any(len(part) > 255 for part in parts):
        return "path too long or too deep"
    return None


def portability_problem(part: bytes) -> str | None:
    """Why one name cannot be held by another common system, in words."""
    try:
        text = part.decode("utf-8")
    except UnicodeDecodeError:
        return "not UTF-8"
    if text.split(".", 1)[0].rstrip(" ").lower() in _RESERVED:
        return "reserved on Windows"
    if text.endswith((".", " ")):
        return "trailing dot or space is lost on Windows"
    if any(char in _NOT_ON_WINDOWS or ord(char) < 0x20 for char in text):
        return "character that Windows does not allow"
    return None


def hidden_character(part: bytes) -> str | None:
    """The first character of a name that people cannot see or that reorders text, as U+XXXX."""
    for char in part.decode("utf-8", "replace"):
        if unicodedata.category(char) in ("Cf", "Co", "Cn", "Zl", "Zp") or (char != " " and char.isspace()):
            return f"U+{ord(char):04X}"
    return None


def fold_case(path: bytes) -> str:
    """What a case-insensitive, normalising file system makes of a path."""
    if path.isascii():
        return path.decode("ascii").lower()
    return unicodedata.normalize("NFC", path.decode("utf-8", "surrogateescape")).casefold()
