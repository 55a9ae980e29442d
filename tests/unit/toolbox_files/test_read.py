"""file.read: what a model sees of any file."""

from __future__ import annotations

import hashlib
import os
import time
import tracemalloc
from typing import Any

import pytest

from corral_protocol.error import ErrorCode


def test_a_text_file_is_told_whole(box: Any) -> None:
    data = b"\xef\xbb\xbfone\ntwo\nthree"
    box.put("a.txt", data, 0o640)
    assert box.read("a.txt") == {
        "path": os.fsdecode(box.path("a.txt")),
        "kind": "text",
        "size": len(data),
        "text": "     1\tone\n     2\ttwo\n     3\tthree\n",
        "first_line": 1,
        "last_line": 3,
        "total_lines": 3,
        "encoding": "utf-8",
        "bom": True,
        "newline": "lf",
        "final_newline": False,
        "truncated": False,
        "sha256": hashlib.sha256(data).hexdigest(),
        "mode": 0o640,
    }


@pytest.mark.parametrize(
    ("data", "newline", "final", "text"),
    [
        (b"a\r\nb\r\n", "crlf", True, "     1\ta\n     2\tb\n"),
        (b"a\rb\r", "cr", True, "     1\ta\n     2\tb\n"),
        (b"a\r\nb\nc\rd\r\n", "mixed", True, "     1\ta\n     2\tb\n     3\tc\\x0dd\n"),
        (b"a", "", False, "     1\ta\n"),
        (b"a\r", "cr", True, "     1\ta\n"),
        (b"a\nb\r", "lf", False, "     1\ta\n     2\tb\\x0d\n"),
        (b"\n\n", "lf", True, "     1\t\n     2\t\n"),
    ],
)
def test_line_ends(box: Any, data: bytes, newline: str, final: bool, text: str) -> None:
    box.put("f", data)
    reply = box.read("f")
    assert (reply["newline"], reply["final_newline"], reply["text"]) == (newline, final, text)


def test_empty_files_are_no_error(box: Any) -> None:
    box.put("empty", b"")
    reply = box.read("empty")
    assert (reply["kind"], reply["size"], reply["text"], reply["total_lines"]) == ("empty", 0, "", 0)


@pytest.mark.parametrize(
    ("data", "encoding", "bom"),
    [
        (b"\xff\xfeh\0i\0\n\0", "utf-16-le", True),
        (b"\xfe\xff\0h\0i\0\n", "utf-16-be", True),
        (b"h\0i\0\n\0", "utf-16-le", False),
        (b"\0h\0i\0\n", "utf-16-be", False),
    ],
)
def test_utf16_is_text(box: Any, data: bytes, encoding: str, bom: bool) -> None:
    box.put("u", data)
    reply = box.read("u")
    assert (reply["kind"], reply["encoding"], reply["bom"], reply["text"]) == ("text", encoding, bom, "     1\thi\n")


def test_undecodable_bytes_are_visible(box: Any) -> None:
    box.put("l1", b"caf\xe9\n")
    box.put("gbk", b"\xd6\xd0\xce\xc4\n")
    assert [(box.read(name)["encoding"], box.read(name)["text"]) for name in ("l1", "gbk")] == [
        ("latin-1?", "     1\tcaf\\xe9\n"),
        ("latin-1?", "     1\t\\xd6\\xd0\\xce\\xc4\n"),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"MZ\0\0",
        b"a" * 9000 + b"\0",
        b"a\n" * 200_000 + b"\0",
        b"\xff\xfe\0\0h\0\0\0",
        b"\xff\xfeabc",
        b"\xff\xfe\x00\xd8a\x00",
        b"\0" * 100,
    ],
)
def test_binary_files_are_named_not_dumped(box: Any, data: bytes) -> None:
    box.put("b", data)
    reply = box.read("b")
    assert (reply["kind"], reply["size"], reply["sha256"], reply["text"]) == (
        "binary",
        len(data),
        hashlib.sha256(data).hexdigest(),
        "",
    )


def test_a_hex_dump_comes_only_when_asked_for(box: Any) -> None:
    box.put("b", bytes(range(40)))
    assert box.read("b", offset=16, limit=18)["text"] == (
        "00000010  10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f  |................|\n"
        "00000020  20 21                                            | !|\n"
    )
    assert box.fail("file.read", path="b", offset=40).code == ErrorCode.INVALID_ARGUMENT


def test_escapes_and_hidden_characters_are_visible(box: Any) -> None:
    box.put("esc", b"\x1b[31mred\n\xc2\x9b1m\n" + "a\u202eb\u200b\u2028c\u2066\U000e0041\n\ttab é 中\n".encode())
    assert box.read("esc")["text"] == (
        "     1\t\\x1b[31mred\n     2\t\\x9b1m\n"
        "     3\ta\\u{202e}b\\u{200b}\\u{2028}c\\u{2066}\\u{e0041}\n     4\t\ttab é 中\n"
    )


def test_windows_of_lines(box: Any) -> None:
    box.put("n", b"".join(b"%d\n" % number for number in range(1, 200_001)))
    reply = box.read("n", offset=199_999, limit=5)
    assert (reply["text"], reply["first_line"], reply["last_line"], reply["total_lines"], reply["truncated"]) == (
        "199999\t199999\n200000\t200000\n",
        199_999,
        200_000,
        200_000,
        False,
    )
    reply = box.read("n", offset=150_000, limit=2)
    assert (reply["text"], reply["last_line"], reply["truncated"]) == (
        "150000\t150000\n150001\t150001\n",
        150_001,
        False,
    )
    error = box.fail("file.read", path="n", offset=200_001)
    assert (error.code, error.data["total_lines"]) == (ErrorCode.INVALID_ARGUMENT, 200_000)


def test_a_reply_has_a_cap_and_says_so(box: Any) -> None:
    box.put("n", b"0123456789\n" * 100_000)
    reply = box.read("n", max_bytes=1000)
    assert len(reply["text"]) <= 1000
    assert (reply["truncated"], reply["total_lines"], reply["last_line"]) == (True, 100_000, len(reply["text"]) // 18)


def test_the_cap_holds_for_what_grows_when_made_visible(box: Any) -> None:
    box.put("n", b"\x1b" * 60 + b"\n" + b"\x1b" * 600)
    reply = box.read("n", max_bytes=300)
    assert len(reply["text"].encode()) <= 300
    assert (reply["truncated"], reply["last_line"]) == (True, 1)


def test_long_lines_are_cut_with_a_mark(box: Any) -> None:
    box.put("l", b"x" * 5000 + b"\n" + "é".encode() * 3000 + b"\nend\n")
    reply = box.read("l")
    assert reply["text"] == (
        f"     1\t{'x' * 2000}... [line cut: 5000 bytes]\n     2\t{'é' * 2000}... [line cut: 6000 bytes]\n     3\tend\n"
    )
    assert reply["truncated"] is True


def test_huge_files_take_little_time_and_memory(box: Any) -> None:
    with open(box.path("big.bin"), "wb") as file:
        file.truncate(3 << 30)
    box.put("line.txt", b"x" * 50_000_000)
    with open(box.path("text.txt"), "wb") as file:
        for _ in range(150):
            file.write(b"0123456789abcde\n" * (1 << 16))
    tracemalloc.start()
    started = time.monotonic()
    binary, window = box.read("big.bin"), box.read("big.bin", offset=2_999_999_000, limit=100)
    line, text = box.read("line.txt"), box.read("text.txt")
    elapsed, peak = time.monotonic() - started, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (binary["kind"], binary["size"], binary["sha256"]) == ("binary", 3 << 30, "")
    assert window["text"].startswith("b2d05a18  00 00")
    assert (line["size"], line["text"].endswith("... [line cut: 50000000 bytes]\n")) == (50_000_000, True)
    assert (text["total_lines"], text["sha256"], text["truncated"]) == (None, "", True)
    assert elapsed < 4, "four reads, under a second each"
    assert peak < 32 << 20


def test_a_window_far_into_a_large_text_is_found(box: Any) -> None:
    with open(box.path("text.txt"), "wb") as file:
        for _ in range(100):
            file.write(b"0123456789abcde\n" * (1 << 16))
    reply = box.read("text.txt", offset=6_000_000, limit=1)
    assert (reply["text"], reply["first_line"]) == ("6000000\t0123456789abcde\n", 6_000_000)


def test_directories_and_missing_files(box: Any) -> None:
    os.mkdir(box.path("d"))
    assert box.code("file.read", path="d") == ErrorCode.IS_A_DIRECTORY
    assert box.code("file.read", path=".") == ErrorCode.IS_A_DIRECTORY
    error = box.fail("file.read", path="missing")
    assert (error.code, "list the directory" in str(error.data["hint"])) == (ErrorCode.NOT_FOUND, True)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"path": 1},
        {"path": ""},
        {"path": "a\0b"},
        {"path": "\0!!"},
        {"path": "f", "offset": -1},
        {"path": "f", "offset": True},
        {"path": "f", "limit": "1"},
        {"path": "n" * 300},
        {"path": "n/" * 3000},
        {"path": "\ud800"},
    ],
)
def test_bad_parameters_are_refused(box: Any, params: dict[str, object]) -> None:
    box.put("f", b"x\n")
    assert box.code("file.read", **params) == ErrorCode.INVALID_ARGUMENT


def test_a_misspelled_name_gets_the_close_ones(box: Any) -> None:
    box.put("src/Parser.py", b"")
    box.put("src/other.txt", b"")
    error = box.fail("file.read", path="src/parser.pi")
    assert (error.code, error.data["hint"]) == (ErrorCode.NOT_FOUND, "names there that are close: 'Parser.py'")
    assert "nor does its directory" in box.fail("file.read", path="sorc/Parser.py").message
