"""After a miss: the regions of a file that look most like what was searched for, at a bounded cost."""

from __future__ import annotations

from corral_toolbox.files.text.visible import cut, show_bytes

MAX_REGIONS = 3
_MAX_TEXT = 2 << 20  # bytes looked at; a larger file is only searched at its start
_MAX_LINES = 20_000
_MAX_SHOWN = 12  # lines per region
_MAX_SCORED = 40  # places compared line by line: 40 x 12 x about 0.1 ms
_MAX_COMPARED = 160  # characters of a line that are compared
_GOOD_ENOUGH = 0.45


def find_similar(body: bytes, wanted: bytes) -> list[dict[str, object]]:
    """Up to three regions as {"line", "end_line", "text"}, the most similar first."""
    lines = body[:_MAX_TEXT].split(b"\n")[:_MAX_LINES]
    target = [line[:_MAX_COMPARED] for line in wanted.strip(b"\n").split(b"\n")[:_MAX_SHOWN]]
    scored = sorted(((_score(lines, at, target), -at) for at in _propose(lines, target)), reverse=True)
    regions: list[dict[str, object]] = []
    taken: list[int] = []
    for score, negative in scored:
        at = -negative
        if score < _GOOD_ENOUGH or len(regions) == MAX_REGIONS:
            break
        if all(abs(at - other) >= len(target) for other in taken):
            taken.append(at)
            regions.append(_describe(lines, at, len(target)))
    return regions


def _describe(lines: list[bytes], at: int, count: int) -> dict[str, object]:
    shown = lines[at : at + count]
    text = "\n".join(cut(show_bytes(line[:400]), 200) for line in shown)
    return {"line": at + 1, "end_line": at + len(shown), "text": text}


def _propose(lines: list[bytes], target: list[bytes]) -> list[int]:
    """Start lines worth comparing: where a line of the target stands (ignoring blanks), else where words agree."""
    wanted: dict[bytes, list[int]] = {}
    for index, line in enumerate(target):
        if line.strip():
            wanted.setdefault(line.strip(), []).append(index)
    votes: dict[int, int] = {}
    for number, line in enumerate(lines):
        for index in wanted.get(line.strip()[:_MAX_COMPARED], ()):
            at = max(0, number - index)
            votes[at] = votes.get(at, 0) + 1
    proposed = sorted(votes, key=lambda at: -votes[at])[: _MAX_SCORED // 2]
    return list(dict.fromkeys(proposed + _propose_by_words(lines, target)))[:_MAX_SCORED]


def _propose_by_words(lines: list[bytes], target: list[bytes]) -> list[int]:
    index = max(range(len(target)), key=lambda number: len(target[number].strip()))
    probe = _bigrams(target[index])
    if not probe:
        return []
    found: list[tuple[float, int]] = []
    for number, line in enumerate(lines):
        grams = _bigrams(line)
        common = len(probe & grams)
        if common:
            found.append((-2 * common / (len(probe) + len(grams)), number))
    found.sort()
    return [max(0, number - index) for _, number in found[: _MAX_SCORED // 2]]


def _bigrams(line: bytes) -> set[bytes]:
    text = line.strip()[:80].lower()
    return {text[at : at + 2] for at in range(len(text) - 1)}


def _score(lines: list[bytes], at: int, target: list[bytes]) -> float:
    from difflib import SequenceMatcher  # late: only a miss needs it

    total = 0.0
    for offset, wanted in enumerate(target):
        if at + offset < len(lines):
            line = lines[at + offset][:_MAX_COMPARED]
            total += 1.0 if line == wanted else SequenceMatcher(None, line.strip(), wanted.strip()).ratio() * 0.99
    return total / len(target)
