"""The patch parser on hostile input: it refuses or gives safe names, never anything else, and agrees with git."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corral.errors import PatchInvalid
from corral.patch import check_patch
from corral.patch.name import refuse_reason
from corral.patch.parse import parse_patch

LINES = [
    b"diff --git a/x b/x",
    b"diff --git a/../x b/../x",
    b'diff --git "a/\\056git/x" "b/\\056git/x"',
    b"new file mode 100644",
    b"deleted file mode 100755",
    b"old mode 100644",
    b"new mode 100755",
    b"new mode 120000",
    b"index 0000000..1111111 100644",
    b"rename from x",
    b"rename to .git/y",
    b"rename to y",
    b"similarity index 90%",
    b"--- a/x",
    b"--- /dev/null",
    b"+++ b/x",
    b"+++ b/.git/config",
    b'+++ "b/\\057etc"',
    b"@@ -1 +1 @@",
    b"@@ -0,0 +1,2 @@",
    b"@@ -1,99999999 +1,9 @@",
    b"-1",
    b"+2",
    b" 3",
    b"\\ No newline at end of file",
    b"GIT binary patch",
    b"literal 5",
    b"Mc$_OOb8`1",
    b"",
]


@given(st.lists(st.one_of(st.sampled_from(LINES), st.binary(max_size=12)), max_size=24))
def test_refuses_or_gives_safe_names(lines: list[bytes]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    try:
        patch = parse_patch(data)
    except PatchInvalid:
        return
    for file in patch.files:
        names = [path for path in (file.old_path, file.new_path) if path is not None]
        assert names
        assert [refuse_reason(path) for path in names] == [None] * len(names)
        assert 0 <= file.start < file.end <= len(data)
        for hunk in file.hunks:
            assert file.start <= hunk.start <= hunk.end <= file.end
    check_patch(patch)


@given(st.binary(max_size=200))
def test_takes_any_bytes(data: bytes) -> None:
    try:
        parse_patch(data)
    except PatchInvalid:
        pass
