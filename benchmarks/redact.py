"""Masking: known values alone, then with all that is known by its looks; and what it costs on the path of a call."""

from __future__ import annotations

from benchmarks.run import Options, alternate, main, timed_blocking
from benchmarks.table import Group, compare, state
from corral.redact import Redactor

VALUE = "Zk83jfLs03kfjslw93jdlsJKw93jdk20"
MARK = b"[secret:value#1~000001]"
LINE = b"2026-12-01 02:00:11.123 INFO worker 3: handled request /api/v1/items/7919 of ann in 12 ms\n"
NOTE = """\
8 MB of log lines, with the value in them every 256 KB. One known value has eight forms to look for, of which
`bytes.replace` looks for one. Below it everything that is known by its looks is looked for, too. The last rows are a
call's own part: a short output in which there is nothing to mask."""


async def measure(options: Options) -> Group:
    data = (LINE * (8_000_000 // len(LINE))).replace(LINE * 2800, LINE * 2800 + VALUE.encode() + b"\n")
    values, quiet = [("value", VALUE)], LINE[:80].decode() * 6
    known, everything, none = Redactor(values, keys=False, numbers=False), Redactor(values), Redactor()
    found = await alternate(
        options.rounds(15, 5),
        {
            "replace": timed_blocking(lambda: data.replace(VALUE.encode(), MARK)),
            "known": timed_blocking(lambda: known.data(data)),
            "everything": timed_blocking(lambda: everything.data(data)),
            "short": timed_blocking(lambda: none.text(quiet)),
            "short, known": timed_blocking(lambda: known.text(quiet)),
        },
        warm=1,
    )
    rows = [
        compare("a known value in 8 MB", found["known"], "`bytes.replace` of it", found["replace"], limit=5),
        state("the same, with keys and numbers", found["everything"]),
        state("480 bytes with nothing in them, keys and numbers", found["short"]),
        state("the same, known values", found["short, known"]),
    ]
    return Group("redact", "Masking", NOTE, rows)


if __name__ == "__main__":
    main(measure)
