"""A small unified diff for people and models to look at; never a patch that something applies."""

from __future__ import annotations

from corral_toolbox.files.text.visible import cut, show_bytes, show_path

MAX_DIFF_BYTES = 8 << 10
_MAX_COMPARED = 400  # lines; difflib's worst case is quadratic, 400 x 400 stays near 10 ms
_CONTEXT = 3
_MAX_LINE = 400


def make_diff(path: bytes, old: bytes, new: bytes, limit: int = MAX_DIFF_BYTES) -> str:
    """Unified diff of two texts, at most `limit` bytes, control characters visible, cost bounded."""
    if old == new or limit <= 0:
        return ""
    name = show_path(path)
    rows = [f"--- {name}", f"+++ {name}", *_compare(old, new)]
    return _join(rows, limit)


def _compare(old: bytes, new: bytes) -> list[str]:
    """Only what lies between the common start and the common end is compared."""
    start = _count_common_start(old, new)
    start = max(old.rfind(b"\n", 0, start), new.rfind(b"\n", 0, start)) + 1 if start else 0
    end = _count_common_end(old, new, min(len(old), len(new)) - start)
    end = _align_end(old, new, end)
    before, first = _take_context_before(old, start)
    after = _take_context_after(old, len(old) - end)
    old_lines = before + _split(old[start : len(old) - end]) + after
    new_lines = before + _split(new[start : len(new) - end]) + after
    if max(len(old_lines), len(new_lines)) <= _MAX_COMPARED:
        return _compare_small(old_lines, new_lines, first)
    head = f"@@ -{first + 1},{len(old_lines)} +{first + 1},{len(new_lines)} @@"
    return [
        head,
        *(_show(" ", line) for line in before),
        *(_show("-", line) for line in old_lines[len(before) : len(before) + 100]),
        *(_show("+", line) for line in new_lines[len(before) : len(before) + 100]),
        f"... a large change: {len(old_lines)} lines became {len(new_lines)}",
    ]


def _compare_small(old: list[bytes], new: list[bytes], first: int) -> list[str]:
    from difflib import SequenceMatcher  # late: costs a millisecond of start-up, many calls never need it

    rows: list[str] = []
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT):
        i1, i2, j1, j2 = group[0][1], group[-1][2], group[0][3], group[-1][4]
        rows.append(f"@@ -{_range(first + i1, i2 - i1)} +{_range(first + j1, j2 - j1)} @@")
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                rows.extend(_show(" ", line) for line in old[a1:a2])
                continue
            rows.extend(_show("-", line) for line in old[a1:a2])
            rows.extend(_show("+", line) for line in new[b1:b2])
    return rows


def _range(start: int, count: int) -> str:
    return f"{start + 1 if count else start},{count}"


def _show(tag: str, line: bytes) -> str:
    text = cut(show_bytes(line[:_MAX_LINE].removesuffix(b"\n")), _MAX_LINE)
    if len(line) > _MAX_LINE:
        return f"{tag}{text}... [line cut: {len(line)} bytes]"
    return tag + text if line.endswith(b"\n") else f"{tag}{text}\n\\ No newline at end of file"


def _split(text: bytes) -> list[bytes]:
    return text.splitlines(keepends=True) if b"\r" not in text else _split_lf(text)


def _split_lf(text: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _count_common_start(old: bytes, new: bytes) -> int:
    """Length of the common start, by halving: comparing slices runs at memory speed."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _count_common_end(old: bytes, new: bytes, most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle : len(old) - low] == new[len(new) - middle : len(new) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def _align_end(old: bytes, new: bytes, end: int) -> int:
    """Shrink the common end so that it begins at the start of a line in both texts."""
    if _begins_line(old, len(old) - end) and _begins_line(new, len(new) - end):
        return end
    at = old.find(b"\n", len(old) - end)
    return len(old) - at - 1 if at >= 0 else 0


def _begins_line(text: bytes, at: int) -> bool:
    return at == 0 or text[at - 1 : at] == b"\n"


def _take_context_before(text: bytes, start: int) -> tuple[list[bytes], int]:
    at = start
    for _ in range(_CONTEXT):
        if at == 0:
            break
        at = text.rfind(b"\n", 0, at - 1) + 1
    return _split(text[at:start]), text.count(b"\n", 0, at)


def _take_context_after(text: bytes, start: int) -> list[bytes]:
    at = start
    for _ in range(_CONTEXT):
        if at >= len(text):
            break
        found = text.find(b"\n", at)
        at = len(text) if found < 0 else found + 1
    return _split(text[start:at])


def _join(rows: list[str], limit: int) -> str:
    room = limit - 60  # for the mark below
    kept: list[str] = []
    for row in rows:
        room -= len(row.encode("utf-8", "replace")) + 1
        if room < 0:
            kept.append(f"... diff cut, {len(rows) - len(kept)} more lines")
            break
        kept.append(row)
    return "\n".join(kept) + "\n"
