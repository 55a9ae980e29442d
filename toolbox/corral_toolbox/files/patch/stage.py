"""Works out what every file of a patch will be, in memory, before anything is touched."""

from __future__ import annotations

import os
import stat
import unicodedata

from corral_protocol.failure import WireError
from corral_toolbox.files.atomic import check_target
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.error_map import make_error, refuse_kind
from corral_toolbox.files.load import load_document, load_file
from corral_toolbox.files.patch.apply import apply_chunks
from corral_toolbox.files.patch.locate import ChunkError
from corral_toolbox.files.patch.model import Action, Section
from corral_toolbox.files.resolve import FileEnv, Place, is_below, require_writable, resolve
from corral_toolbox.files.text.document import Document
from corral_toolbox.files.text.similar import find_similar
from corral_toolbox.files.text.visible import show_path

MAX_SECTIONS = 500  # one descriptor each is held until the end
MAX_FILE_BYTES = 16 << 20
MAX_TOTAL_BYTES = 128 << 20
_MAX_PATHS = 128 << 10  # bytes of all paths: the reply names each file, and is one frame of at most 1 MiB


class StagedFile:
    """One path: what is there, and what will be."""

    def __init__(self, place: Place, content: bytes | None, mode: int) -> None:
        self.place = place
        self.old = content
        """Content now; None: there is no file. Links and files that are only deleted are not read (empty)."""
        self.new = content
        self.mode = mode
        """Permission bits of the new file."""
        self.moved_from = b""
        self.is_move_source = False
        self.notices: list[str] = []

    @property
    def is_changed(self) -> bool:
        """Whether anything has to be written or removed."""
        if self.old is None or self.new is None:
            return self.place.stat is not None or self.new is not None
        return self.old != self.new or self.place.stat is None or self.mode != stat.S_IMODE(self.place.stat.st_mode)


class Stage:
    """All files of a patch. Later sections see what earlier ones made of a file."""

    def __init__(self, env: FileEnv, *, overwrite: bool) -> None:
        self.env = env
        self.overwrite = overwrite
        self.files: dict[bytes, StagedFile] = {}
        self.notices: list[str] = []
        self._bytes = 0
        self._path_bytes = 0

    def close(self) -> None:
        """Give all descriptors back."""
        for file in self.files.values():
            file.place.close()

    def add(self, section: Section) -> None:
        """Work out one section. Raises WireError or OSError; then the whole patch is refused."""
        if section.action is Action.ADD:
            self._add_file(section)
        elif section.action is Action.DELETE:
            self._delete_file(section)
        else:
            self._update_file(section)

    def _add_file(self, section: Section) -> None:
        file = self._open(section.path, follow=False)
        self._require_free(file, section)
        file.new = section.content or b""
        if file.place.stat is None or section.is_executable is not None:
            file.mode = 0o755 if section.is_executable else 0o644

    def _delete_file(self, section: Section) -> None:
        file = self._open(section.path, follow=False, is_read=section.checks_content)
        if file.new is None:
            raise make_error(ErrorCode.NOT_FOUND, file.place.path, "does not exist, so it cannot be deleted")
        if section.checks_content:
            rest, _ = self._apply(file, section)
            if rest:
                raise make_error(
                    ErrorCode.PATCH_CONFLICT,
                    file.place.path,
                    "has more lines than the patch deletes",
                    "read it again, or use `*** Delete File`",
                    line=section.at_line,
                )
        file.new = None

    def _update_file(self, section: Section) -> None:
        file = self._open(section.path, follow=True)
        if file.new is None:
            raise self._explain_missing(file, section)
        content, notices = self._apply(file, section)
        mode = file.mode
        if section.is_executable is not None:
            mode = mode | (mode & 0o444) >> 2 if section.is_executable else mode & ~0o111
        if section.move_to is None:
            file.new, file.mode = content, mode
            file.notices += notices
            return
        target = self._open(section.move_to, follow=False)
        if target is file:
            raise make_error(ErrorCode.INVALID_ARGUMENT, file.place.path, "is moved onto itself", line=section.at_line)
        self._require_free(target, section)
        target.new, target.mode, target.moved_from = content, mode, file.moved_from or file.place.path
        target.notices += [*file.notices, *notices]
        file.new, file.is_move_source = None, True

    def _apply(self, file: StagedFile, section: Section) -> tuple[bytes, list[str]]:
        raw = file.new or b""
        if not section.chunks:
            return raw, []
        document = load_document(file.place, raw)
        try:
            changed, notices = apply_chunks(document, section.chunks)
            return changed.encode(), notices
        except ChunkError as error:
            raise _explain_chunk(error, file.place.path, document, section) from error
        except UnicodeDecodeError:
            raise make_error(
                ErrorCode.UNSUPPORTED_ENCODING,
                file.place.path,
                f"is {document.encoding.name}, and the patch holds bytes that are not UTF-8",
            ) from None

    def _require_free(self, file: StagedFile, section: Section) -> None:
        if file.new is not None and not self.overwrite:
            raise make_error(
                ErrorCode.EXISTS,
                file.place.path,
                "exists; use Update",
                "use `*** Update File`, or delete it first in the same patch",
                line=section.at_line,
            )

    def _open(self, path: bytes, *, follow: bool, is_read: bool = True) -> StagedFile:
        place = resolve(self.env, self._check_path(path), follow=follow)
        try:
            known = self.files.get(place.path)
            if known is not None:
                place.close()
                return known
            self._path_bytes += len(place.path)
            if len(self.files) >= MAX_SECTIONS or self._path_bytes > _MAX_PATHS:
                raise WireError(ErrorCode.TOO_LARGE, f"the patch touches too many files (at most {MAX_SECTIONS})")
            self._require_inside(place, path)
            file = self._load(place, follow=follow, is_read=is_read)
        except BaseException:
            place.close()
            raise
        self.files[place.path] = file
        return file

    def _load(self, place: Place, *, follow: bool, is_read: bool) -> StagedFile:
        found = place.stat
        if found is not None and stat.S_ISLNK(found.st_mode) and not (follow or is_read):
            require_writable(place)
            return StagedFile(place, b"", 0o777)  # the link itself, to be deleted
        if found is not None and stat.S_ISLNK(found.st_mode):
            raise make_error(
                ErrorCode.EXISTS, place.path, "is a symbolic link", "delete the link first, or name its target"
            )
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise refuse_kind(place.path, found.st_mode)
        if not is_read and found is not None:
            require_writable(place)  # to be deleted: only the directory's permission counts
            return StagedFile(place, b"", stat.S_IMODE(found.st_mode))
        check_target(place, overwrite=True)
        if found is None:
            return StagedFile(place, None, 0o644)
        loaded = load_file(place, MAX_FILE_BYTES)
        place.stat = loaded.stat
        self._bytes += len(loaded.raw)
        if self._bytes > MAX_TOTAL_BYTES:
            raise WireError(ErrorCode.TOO_LARGE, f"the files of the patch have more than {MAX_TOTAL_BYTES} bytes")
        return StagedFile(place, loaded.raw, stat.S_IMODE(loaded.stat.st_mode))

    def _check_path(self, path: bytes) -> bytes:
        """Refuse names that no patch may hold, and take odd spaces around a name off where only that fits."""
        # SECURITY: a patch writes below the workspace and never into .git (test_patch_paths.py).
        parts = path.split(b"/")
        if path.startswith(b"/"):
            raise _refuse_path(path, "is absolute", "write paths relative to the workspace")
        if b".." in parts or b"\0" in path:
            raise _refuse_path(path, "leaves its directory with `..`", "write paths relative to the workspace")
        if any(is_git_dir(part) for part in parts):
            raise _refuse_path(path, "lies in .git, which patches never touch", "use git in the shell")
        if parts[-1] in (b"", b"."):
            raise _refuse_path(path, "names a directory", "name a file")
        trimmed = path.strip()
        if trimmed == path or not trimmed or self._exists(path):
            return path
        self.notices.append(f"{show_path(path)!r}: blanks around the file name were left out")
        return trimmed

    def _exists(self, path: bytes) -> bool:
        with resolve(self.env, path, follow=False) as place:
            return place.stat is not None or place.path in self.files

    def _require_inside(self, place: Place, path: bytes) -> None:
        """The same after links are resolved."""
        inner = place.path[len(self.env.workspace) :].split(b"/")
        # SECURITY: a link to .git, or out of the workspace to /tmp, is no way around (test_patch_paths.py).
        if not is_below(place.path, self.env.workspace) or any(is_git_dir(part) for part in inner):
            raise _refuse_path(path, "leads out of the workspace or into .git through a link", "name the real file")

    def _explain_missing(self, file: StagedFile, section: Section) -> WireError:
        hint = "use `*** Add File` for a new file, or list the directory to see the names that exist"
        return make_error(ErrorCode.NOT_FOUND, file.place.path, "does not exist", hint, line=section.at_line)


def is_git_dir(part: bytes) -> bool:
    """Whether a path component is .git on any file system: case, dots, blanks and invisible characters do not count."""
    text = unicodedata.normalize("NFKC", os.fsdecode(part))
    folded = "".join(char for char in text if unicodedata.category(char) != "Cf").rstrip(". ").casefold()
    return folded == ".git" or folded.startswith(".git:") or folded == "git~1"


def _refuse_path(path: bytes, message: str, hint: str) -> WireError:
    return make_error(ErrorCode.OUTSIDE_WORKSPACE, path, message, hint)


def _explain_chunk(error: ChunkError, path: bytes, document: Document, section: Section) -> WireError:
    data: dict[str, object] = {"line": section.at_line}
    message = str(error)
    if error.places:
        data["lines"] = [place + 1 for place in error.places]
    if error.code == ErrorCode.NO_MATCH and not error.places:
        similar = find_similar(document.body, error.wanted) if error.wanted else []
        data["similar"] = similar
        if similar:
            message += f"; the most similar lines are at line {similar[0]['line']}"
    return make_error(error.code, path, message, error.hint, **data)
