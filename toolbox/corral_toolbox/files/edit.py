"""file.edit: replaces literal text. What was not named keeps every byte: encoding, BOM, line ends, mode."""

from __future__ import annotations

from corral_protocol.failure import WireError
from corral_toolbox.files.atomic import check_target, replace_file
from corral_toolbox.files.code import ErrorCode
from corral_toolbox.files.digest import hash_bytes
from corral_toolbox.files.error_map import make_error
from corral_toolbox.files.load import MAX_EDIT_BYTES, describe_change, load_document, load_file
from corral_toolbox.files.params import Params, invalid, take_bool, take_name, take_str
from corral_toolbox.files.resolve import FileEnv, resolve
from corral_toolbox.files.text.document import LF, Document, choose_kinds, parse_document
from corral_toolbox.files.text.similar import find_similar

_MAX_LOCATIONS = 20
_MAX_COUNTED = 1000
_MAX_SPLICES = 500_000
_RE_READ = "read the file again and copy the text exactly, without the line numbers"


class _Step:
    def __init__(self, old: bytes, new: bytes, *, replace_all: bool) -> None:
        self.old = old
        self.new = new
        self.replace_all = replace_all


class _Miss(Exception):
    """One edit does not apply; becomes a WireError with the path and the edit's index."""

    def __init__(self, code: ErrorCode, message: str, hint: str = "", **data: object) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.data = data


def edit_file(params: Params, env: FileEnv) -> dict[str, object]:
    """FileEdit -> FileChanged. All edits or none."""
    path = take_name(params, "path")
    steps = _take_steps(params)
    with resolve(env, path) as place:
        check_target(place, overwrite=True)
        loaded = load_file(place)
        place.stat = loaded.stat
        document = load_document(place, loaded.raw)
        replaced = 0
        for index, step in enumerate(steps):
            try:
                replaced += _apply(document, step)
            except _Miss as miss:
                raise _explain(miss, place.path, index, len(steps), loaded.raw) from None
        new = document.encode()
        if new == loaded.raw:
            return describe_change(place.path, "unchanged", loaded.raw, new, replaced=replaced)
        notices = replace_file(place, [new], mode=None, overwrite=True)
        return describe_change(place.path, "modified", loaded.raw, new, replaced=replaced, notices=notices)


def _take_steps(params: Params) -> list[_Step]:
    edits = params.get("edits")
    if not isinstance(edits, list) or not edits:
        raise invalid("parameter 'edits' must be a list with at least one edit")
    steps: list[_Step] = []
    for index, edit in enumerate(edits):
        if not isinstance(edit, dict):
            raise invalid(f"edit {index} is not an object", edit=index)
        old, new = take_str(edit, "old"), take_str(edit, "new")
        if not old:
            raise invalid(
                f"edit {index}: the text to replace is empty", edit=index, hint="use write_file to create a file"
            )
        if old == new:
            raise WireError(
                ErrorCode.NO_CHANGE, f"edit {index}: no change, old and new text are the same", {"edit": index}
            )
        try:
            steps.append(_Step(old.encode(), new.encode(), replace_all=take_bool(edit, "replace_all", default=False)))
        except UnicodeEncodeError:
            raise invalid(f"edit {index}: half of a surrogate pair is not text", edit=index) from None
    return steps


def _apply(document: Document, step: _Step) -> int:
    old = step.old.replace(b"\r\n", b"\n")
    new = step.new.replace(b"\r\n", b"\n")
    _check(document, step, old, new)
    if step.replace_all:
        return _replace_all(document, old, new)
    _splice(document, [document.body.index(old)], len(old), old.count(b"\n"), new)
    return 1


def _check(document: Document, step: _Step, old: bytes, new: bytes) -> None:
    """Refuse what does not occur, occurs too often, or cannot be put in."""
    first = document.body.find(old)
    if first < 0:
        raise _Miss(ErrorCode.NO_MATCH, "the text to replace does not occur", _hint_miss(document, old), old=old)
    if not step.replace_all and document.body.find(old, first + 1) >= 0:
        places = _find(document.body, old, 1, _MAX_COUNTED)
        lines = [document.body.count(b"\n", 0, at) + 1 for at in places[:_MAX_LOCATIONS]]
        count = f"more than {_MAX_COUNTED}" if len(places) > _MAX_COUNTED else str(len(places))
        more = "" if len(places) <= _MAX_LOCATIONS else " and more"
        raise _Miss(
            ErrorCode.AMBIGUOUS_MATCH,
            f"the text to replace occurs {count} times, at lines {', '.join(map(str, lines))}{more}",
            "add lines around it until it is unique, or set replace_all",
            lines=lines,
        )
    if old == new:
        raise _Miss(ErrorCode.NO_CHANGE, "no change: the texts differ only in line ends, and the file's own are kept")
    if document.encoding.name == "latin-1?" and not new.isascii() and old.isascii():
        # Whatever the old encoding is, UTF-8 would be mixed into it.
        raise _Miss(
            ErrorCode.UNSUPPORTED_ENCODING,
            "the file is not UTF-8, so only ASCII text can be put in",
            "convert it with iconv in the shell first, or write ASCII",
        )


def _find(body: bytes, old: bytes, step: int, most: int) -> list[int]:
    """Places of a text, each at least `step` after the one before; at most one more than `most`."""
    places: list[int] = []
    at = body.find(old)
    while at >= 0 and len(places) <= most:
        places.append(at)
        at = body.find(old, at + step)
    return places


def _replace_all(document: Document, old: bytes, new: bytes) -> int:
    count = document.body.count(old)
    removed, added = old.count(b"\n"), new.count(b"\n")
    if len(document.body) + count * (len(new) - len(old)) > 2 * MAX_EDIT_BYTES:
        raise _Miss(ErrorCode.TOO_LARGE, "the result would be too large", "replace less at once")
    if document.kinds.count(document.kinds[:1] or b"\0") < len(document.kinds) and (removed or added):
        # Only in a file of mixed line ends does it matter where each replacement stands.
        places = _find(document.body, old, len(old), _MAX_SPLICES)
        if len(places) > _MAX_SPLICES:
            raise _Miss(ErrorCode.TOO_LARGE, f"more than {_MAX_SPLICES} places in a file of mixed line ends")
        _splice(document, places, len(old), removed, new)
        return count
    kind = document.kinds[:1] or bytearray([LF])
    document.body = document.body.replace(old, new)
    if removed != added:
        document.kinds = kind * document.body.count(b"\n")
    return count


def _splice(document: Document, places: list[int], length: int, removed: int, new: bytes) -> None:
    """Replace the text at each place; only the line ends of replaced text are chosen anew."""
    parts: list[bytes] = []
    kinds = bytearray()
    added = new.count(b"\n")
    done = line = 0
    for at in places:
        parts += (document.body[done:at], new)
        first = line + document.body.count(b"\n", done, at)
        kinds += document.kinds[line:first] + choose_kinds(document.kinds, first, removed, added)
        line = first + removed
        done = at + length
    document.body = b"".join([*parts, document.body[done:]])
    document.kinds = kinds + document.kinds[line:]


def _hint_miss(document: Document, old: bytes) -> str:
    if old.strip() and old.strip() in document.body:
        return "it occurs with other spaces or blank lines at its start or end; copy those too"
    if document.encoding.name == "latin-1?" and not old.isascii():
        return "the file is not UTF-8; choose a part of the line that is plain ASCII"
    return _RE_READ


def _explain(miss: _Miss, path: bytes, index: int, count: int, raw: bytes) -> WireError:
    where = f"edit {index}: " if count > 1 else ""
    data = dict(miss.data)
    old = data.pop("old", None)
    message = f"{where}{miss}"
    if isinstance(old, bytes):
        document = parse_document(raw)
        similar = find_similar(document.body, old) if document is not None else []
        data["similar"] = similar
        if similar:
            message += f"; the most similar text is at line {similar[0]['line']}"
    data["sha256"] = hash_bytes(raw)
    return make_error(miss.code, path, message, miss.hint, edit=index, **data)
