"""An edit changes exactly the named bytes, in every encoding and with every mix of line ends."""

from __future__ import annotations

import os
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from corral_protocol.error import ErrorCode, WireError
from corral_toolbox.files import FileEnv, dispatch
from corral_toolbox.files.text.document import CR, CRLF, LF, choose_kinds, parse_document

LINES = st.lists(st.sampled_from(["a", "b", "ab", "é", "中", "", " ", "x y", "\t"]), max_size=8)
ENDS = st.lists(st.sampled_from(["\n", "\r\n"]), min_size=8, max_size=8)
CODECS = st.sampled_from(
    [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")]
)


def edit(data: bytes, old: str, new: str, *, replace_all: bool = False) -> tuple[bytes, ErrorCode | None]:
    """The file after an edit, and the error if there was one."""
    with tempfile.TemporaryDirectory() as folder:
        root = os.fsencode(folder)
        with open(os.path.join(root, b"f"), "wb") as file:
            file.write(data)
        code = None
        try:
            edits = [{"old": old, "new": new, "replace_all": replace_all}]
            dispatch("file.edit", {"path": "f", "edits": edits}, FileEnv(root, [(root, True)]))
        except WireError as error:
            code = error.code
        with open(os.path.join(root, b"f"), "rb") as file:
            assert sorted(os.listdir(root)) == [b"f"]
            return file.read(), code


@settings(max_examples=300, deadline=None)
@given(raw=st.binary(max_size=200) | st.text(alphabet="ab\r\n\té中", max_size=60).map(str.encode))
def test_every_text_file_encodes_back_to_its_bytes(raw: bytes) -> None:
    document = parse_document(raw)
    assert document is None or document.encode() == raw


@settings(max_examples=150, deadline=None)
@given(before=LINES, after=LINES, ends=ENDS, new=st.text(alphabet="pqé\\$&{} \n", max_size=12), codec=CODECS)
def test_a_unique_text_is_replaced_and_nothing_else(
    before: list[str], after: list[str], ends: list[str], new: str, codec: tuple[str, bytes]
) -> None:
    name, bom = codec
    head = "".join(line + end for line, end in zip(before, ends, strict=False))
    tail = "".join(line + end for line, end in zip(after, reversed(ends), strict=False))

    def encode(text: str) -> bytes:
        return bom + text.encode(name)

    result, code = edit(encode(head + "<<X>>" + tail), "<<X>>", new)
    assert code is None
    crlf, lf = (head + tail).count("\r\n"), (head + tail).replace("\r\n", "").count("\n")
    if not crlf or not lf or "\n" not in new:
        assert result == encode(head + new.replace("\n", "\r\n" if crlf else "\n") + tail)
    else:  # a mixed file: whichever of its line ends the new lines get, the rest stays
        assert result.startswith(encode(head))
        assert result.endswith(tail.encode(name))


@settings(max_examples=150, deadline=None)
@given(
    junk=st.binary(max_size=30).filter(lambda data: b"\0" not in data and b"<" not in data),
    more=st.binary(max_size=30).filter(lambda data: b"\0" not in data and b"<" not in data),
    new=st.text(alphabet="abc$\\", max_size=6),
)
def test_bytes_of_unknown_encodings_survive(junk: bytes, more: bytes, new: str) -> None:
    data = b"x" + junk + b"<<X>>" + more
    if parse_document(data) is None:
        return
    result, code = edit(data, "<<X>>", new)
    assert (result, code) == (b"x" + junk + new.encode() + more, None)


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(alphabet="ab\n", max_size=30),
    old=st.text(alphabet="ab\n", min_size=1, max_size=3),
    new=st.text(alphabet="abc\n", max_size=3),
    replace_all=st.booleans(),
)
def test_counts_decide_between_edit_and_refusal(text: str, old: str, new: str, replace_all: bool) -> None:
    data = text.encode()
    result, code = edit(data, old, new, replace_all=replace_all)
    starts = [at for at in range(len(text)) if text.startswith(old, at)]
    if old == new:
        assert (result, code) == (data, ErrorCode.NO_CHANGE)
    elif not starts:
        assert result == data and code in (ErrorCode.NO_MATCH, ErrorCode.BINARY_FILE)
    elif len(starts) > 1 and not replace_all:
        assert (result, code) == (data, ErrorCode.AMBIGUOUS_MATCH)
    else:
        assert (result, code) == (text.replace(old, new).encode(), None)


@given(
    kinds=st.lists(st.sampled_from([LF, CRLF, CR]), max_size=6).map(bytearray),
    first=st.integers(0, 6),
    removed=st.integers(0, 4),
    added=st.integers(0, 6),
)
def test_line_ends_are_chosen_for_every_new_line(kinds: bytearray, first: int, removed: int, added: int) -> None:
    first = min(first, len(kinds))
    removed = min(removed, len(kinds) - first)
    chosen = choose_kinds(kinds, first, removed, added)
    assert len(chosen) == added
    assert chosen[: min(removed, added)] == kinds[first : first + min(removed, added)]
    assert set(chosen) <= (set(kinds) or {LF})
