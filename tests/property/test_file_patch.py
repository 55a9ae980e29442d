"""Applying a diff of two texts gives the second text; a patch never leaves anything half done."""

from __future__ import annotations

import base64
import difflib
import os
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from corral_protocol.error import ErrorCode, WireError
from corral_toolbox.files import FileEnv, dispatch
from corral_toolbox.files.patch import parse_patch

LINE = st.sampled_from(
    [b"a", b"b", b"ab", b"-", b"--", b"-- a", b"++ b", b"", b" ", b"\xc3\xa9", b"\xff", b"@@", b"*** End Patch"]
)
END = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"])
LINES = st.lists(st.tuples(LINE, END).map(b"".join), max_size=12)


def join(lines: list[bytes], is_terminated: bool) -> bytes:
    text = b"".join(lines)
    return text if is_terminated else text.rstrip(b"\r\n")


TEXT = st.builds(join, LINES, st.booleans())


def split(text: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def make_unified(old: bytes, new: bytes, context: int) -> bytes:
    """What `diff -u` prints, marks for missing line ends included."""
    rows = difflib.diff_bytes(difflib.unified_diff, split(old), split(new), b"a/f", b"b/f", n=context, lineterm=b"\n")
    return b"".join(row if row.endswith(b"\n") else row + b"\n\\ No newline at end of file\n" for row in rows)


def make_v4a(old: bytes, new: bytes) -> bytes:
    """One chunk with every line of both texts."""
    rows = difflib.ndiff(*[[line.decode("latin-1") for line in split(text)] for text in (old, new)])
    body = "".join(row[0] + row[2:] for row in rows if row[0] != "?")
    return b"*** Begin Patch\n*** Update File: f\n@@\n" + body.encode("latin-1") + b"*** End Patch\n"


def apply(old: bytes, patch: bytes) -> tuple[bytes, ErrorCode | None]:
    with tempfile.TemporaryDirectory() as folder:
        root = os.fsencode(folder)
        with open(os.path.join(root, b"f"), "wb") as file:
            file.write(old)
        code = None
        try:
            params = {"text_b64": base64.b64encode(patch).decode()}
            dispatch("file.patch", params, FileEnv(root, [(root, True)]))
        except WireError as error:
            code = error.code
        with open(os.path.join(root, b"f"), "rb") as file:
            assert os.listdir(root) == [b"f"]
            return file.read(), code


@settings(max_examples=400, deadline=None)
@given(old=TEXT, new=TEXT, context=st.integers(0, 3))
def test_a_diff_of_two_texts_gives_the_second(old: bytes, new: bytes, context: int) -> None:
    if old == new or not old or not new:
        return
    if old.count(b"\n") == old.count(b"\r\n") > 0:
        context = max(context, 1)  # without any line of the file, new lines follow its one style
    assert apply(old, make_unified(old, new, context)) == (new, None)


@settings(max_examples=200, deadline=None)
@given(old=LINES.map(b"".join), new=LINES.map(b"".join))
def test_a_chunk_with_all_lines_gives_the_second(old: bytes, new: bytes) -> None:
    old, new = (text.replace(b"\r", b"").replace(b"\xff", b"y") for text in (old, new))
    if old == new or not old:
        return
    assert apply(old, make_v4a(old, new)) == (new, None)


@settings(max_examples=200, deadline=None)
@given(old=TEXT, new=TEXT, other=TEXT)
def test_a_patch_for_another_text_changes_all_or_nothing(old: bytes, new: bytes, other: bytes) -> None:
    if old == new or not old or not new:
        return
    result, code = apply(other, make_unified(old, new, 3))
    assert code is None or result == other


ROWS = b"""--- a/f
+++ b/f
@@ -1 +1 @@
@@ -1,2 +3,4 @@
@@
 a
-a
+b

\\ No newline at end of file
x
diff --git a/f b/f
rename from f
new file mode 100644
--- "a/f
GIT binary patch
*** Begin Patch
*** Update File: f
*** Add File: g
*** End of File
*** End Patch
```""".split(b"\n")


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(st.sampled_from(ROWS), max_size=14))
def test_any_text_is_parsed_or_refused_by_name(rows: list[bytes]) -> None:
    try:
        parsed = parse_patch(b"\n".join(rows))
    except WireError as error:
        assert error.code in (ErrorCode.PATCH_INVALID, ErrorCode.UNSUPPORTED)
    else:
        assert parsed.sections


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    for start in (b"", b"*** Begin Patch\n", b"--- a/f\n+++ b/f\n", b"diff --git a/f b/f\n"):
        try:
            parse_patch(start + data)
        except WireError as error:
            assert error.code in (ErrorCode.PATCH_INVALID, ErrorCode.UNSUPPORTED)
