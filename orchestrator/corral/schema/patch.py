"""Patch, FileChange, NotExported, Finding: what review, policy, record and apply share about a patch.

Paths are in the wire form of corral_protocol.name: text where the name is UTF-8, NUL plus base64 where it is not.
They are for machines; show them through `corral.schema.path.show_path`.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from corral.schema.tools import Frozen


class Action(StrEnum):
    """What happened to one path."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    RENAMED = "renamed"
    RETYPED = "retyped"  # a file became a symlink, or the other way round
    MODE = "mode"  # only the executable bit


class Reason(StrEnum):
    """Why a change is not in the patch. docs/reference/patch.md explains each."""

    GIT_DIR = "git_dir"  # a `.git` in the path, or a name that some system takes for one
    MASKED = "masked"  # a secret file the box saw as a placeholder only
    IGNORED = "ignored"  # the original's ignore rules cover it and git does not track it
    DEPENDENCY_DIR = "dependency_dir"  # a new node_modules, .venv, __pycache__, ...
    TOOL_FILES = "tool_files"  # what corral itself leaves in a workspace
    SUBMODULE = "submodule"  # below a submodule of the original
    SUBMOUNT = "submount"  # another file system is mounted there
    SPECIAL_FILE = "special_file"  # FIFO, socket, device
    EMPTY_DIRECTORY = "empty_directory"  # git has no empty directories
    MODE_BITS = "mode_bits"  # permission bits other than git's 644 and 755
    XATTR = "xattr"  # extended attributes, ACLs
    BASE_CHANGED = "base_changed"  # the original was edited while the box ran
    IN_THE_WAY = "in_the_way"  # something that is not exported stands at this path, or at a parent of it
    UNREADABLE = "unreadable"  # the mode forbids us to read it
    LEFTOVER = "leftover"  # a temporary file of a file tool that was killed half way
    TOO_MANY = "too_many_files"
    TOO_LARGE = "too_large"
    BAD_NAME = "bad_name"  # too long, too deep, or a name git refuses to write


class NotExported(Frozen):
    """One change that is not in the patch. A path that ends in `/` stands for everything below it."""

    path: str
    reason: Reason
    detail: str = ""  # printable, one line


class FileChange(Frozen):
    """One file of the patch."""

    path: str
    action: Action
    old_path: str | None = None  # renames only
    old_mode: str | None = None  # "100644", "100755", "120000"; None when there was no file
    new_mode: str | None = None
    old_blob: str | None = None
    new_blob: str | None = None
    added: int = 0  # lines; 0 for binary files
    removed: int = 0
    binary: bool = False


class Severity(StrEnum):
    """What a finding asks for. Policy may be stricter, never milder than `block`."""

    INFO = "info"
    WARN = "warn"
    ASK = "ask"  # applied only after an explicit yes
    BLOCK = "block"  # not applied


class Finding(Frozen):
    """Something a reviewer should see before the patch leaves."""

    kind: str
    severity: Severity
    path: str
    line: int | None = None  # of the new file
    text: str = ""  # printable, secrets masked


class Patch(Frozen):
    """A patch file and what is known about it. The bytes are in the file, untouched since git wrote them."""

    version: int = 1
    sha256: str
    size: int
    files: tuple[FileChange, ...] = ()
    not_exported: tuple[NotExported, ...] = ()
    findings: tuple[Finding, ...] = ()
    added: int = 0
    removed: int = 0
    started_ns: int = Field(default=0, description="the base is the workspace as it was at this time")
