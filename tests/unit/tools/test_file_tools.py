from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.tools.conftest import Bench
from tests.unit.tools.fake_box import Run
from tests.unit.tools.test_executor import unwrap

from corral.schema.tools import Artifact, ToolStatus
from corral.tools.builtin.schema import show_name
from corral_protocol.message import EditStep, ExecStatus

Build = Callable[..., Bench]


async def test_a_file_is_read_with_its_facts(bench: Build) -> None:
    desk = bench()
    desk.box.files["a.py"] = b"one\ntwo\nthree"
    result = await desk.call("read_file", path="a.py", offset=2, limit=1)
    assert unwrap(result) == "     2\ttwo\n"
    assert result.summary == ("/workspace/a.py: text, 13 bytes, lines 2 to 2 of 3, utf-8, no newline at the end")
    assert (result.status, result.next_actions) == (ToolStatus.TRUNCATED, ("read on with offset 3",))


async def test_binary_and_empty_files_are_no_errors(bench: Build) -> None:
    desk = bench()
    desk.box.files |= {"a.exe": b"MZ\0\0", "empty": b""}
    binary, empty = await desk.call("read_file", path="a.exe"), await desk.call("read_file", path="empty")
    assert (binary.success, binary.output, empty.success, empty.output) == (True, "", True, "")
    assert "binary, 4 bytes, sha256 " in binary.summary
    assert empty.summary == "/workspace/empty: empty, 0 bytes"


async def test_a_new_file_is_written_and_an_old_one_kept(bench: Build) -> None:
    desk = bench()
    first = await desk.call("write_file", path="a", content="x\n")
    second = await desk.call("write_file", path="a", content="y\n")
    assert first.success
    assert first.artifacts == (
        Artifact(
            path="/workspace/a", size=2, sha256="73cb3858a687a8494ca3323053016282f3dad39d42cf62ca4e79dda2aac7d9ac"
        ),
    )
    assert second.error is not None
    assert (second.error.code, desk.box.files["a"]) == ("exists", b"x\n")
    assert desk.events()[3].payload.model_dump()["touched"] == ("/workspace/a",)


async def test_an_edit_passes_its_strings_through_untouched(bench: Build) -> None:
    desk = bench()
    desk.box.files["a"] = b"price: OLD\n"
    text = "$& \\1 \\g<0> %s {0}\r\n"
    result = await desk.call("edit_file", path="a", old_string="OLD", new_string=text)
    assert desk.box.calls == [("edit_file", ("a", [EditStep("OLD", text, False)]))]
    assert result.summary == "modified /workspace/a, 28 bytes, 1 replacement"


async def test_an_empty_old_string_is_refused(bench: Build) -> None:
    desk = bench()
    result = await desk.call("edit_file", path="a", old_string="", new_string="x", replace_all=True)
    assert result.error is not None
    assert (result.error.code, result.error.location) == ("invalid_argument", "old_string")


async def test_a_patch_tells_every_file_and_tolerance(bench: Build) -> None:
    desk = bench()
    result = await desk.call("apply_patch", patch="*** Begin Patch\n*** End Patch\n")
    assert result.summary == "modified /workspace/a, 0 bytes and 1 more files"
    assert "line endings were taken as CRLF" in unwrap(result)
    assert [artifact.path for artifact in result.artifacts] == ["/workspace/a", "/workspace/b"]


async def test_a_dry_run_says_that_nothing_was_done(bench: Build) -> None:
    desk = bench()
    result = await desk.call("apply_patch", patch="*** Begin Patch\n*** End Patch\n", dry_run=True)
    assert (result.status, result.artifacts) == (ToolStatus.NOT_EXECUTED, ())
    assert result.summary.startswith("it applies; not done")


async def test_move_and_delete(bench: Build) -> None:
    desk = bench()
    desk.box.files["a"] = b"x"
    assert (await desk.call("rename_file", source="a", target="b")).summary == "moved /workspace/b"
    assert (await desk.call("delete_file", path="b")).summary == "deleted /workspace/b"
    assert desk.box.files == {}


async def test_a_listing_shows_kinds_and_how_to_go_on(bench: Build) -> None:
    desk = bench()
    desk.box.files |= {"a\nb": b"x", "plain": b"12345"}
    result = await desk.call("list_files")
    assert unwrap(result).splitlines() == [
        '           1  "a\\nb"',
        "           5  plain",
        "           -  src/",
        "           -  ln -> /etc",
    ]
    assert (result.status, result.summary) == (ToolStatus.TRUNCATED, "/workspace: 4 entries of 4")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a.py", "a.py"),
        ("é", "é"),
        ("two words", "two words"),
        (" lead", '" lead"'),
        ("it's", '"it\'s"'),
        ('q"u', '"q\\"u"'),
        ("a\\b", '"a\\\\b"'),
        ("\0L/8=", '"\\u0000L/8="'),
        ("a\u202eb", '"a\\u202eb"'),
        ("a\u200bb", '"a\\u200bb"'),
        ("", '""'),
    ],
)
def test_a_name_is_shown_so_that_it_can_be_sent_back(name: str, shown: str) -> None:
    assert show_name(name) == shown


async def test_search_passes_nothing_as_an_option(bench: Build) -> None:
    desk = bench(Run(stdout=b"./a.py:1:x\n"))
    result = await desk.call("search", pattern="--pre=rm", path="-rf", glob="--hidden", limit=5, context=2)
    assert unwrap(result) == "a.py:1:x\n"
    ((_, (argv, options)),) = desk.box.calls
    assert argv[:2] == ["rg", "--no-config"]
    assert argv[-3:] == ["--regexp=--pre=rm", "--", b"-rf"]
    assert "--glob=--hidden" in argv
    assert options["timeout_s"] == 15


async def test_search_results_are_bounded(bench: Build) -> None:
    desk = bench(Run(stdout=b"".join(b"./f:%d:hit\n" % number for number in range(50_000))), Run(exit_code=1))
    many = await desk.call("search", pattern="hit", limit=3)
    assert unwrap(many) == "f:0:hit\nf:1:hit\nf:2:hit\n"
    assert (many.status, many.summary) == (ToolStatus.TRUNCATED, "the first 3 lines; there are more")
    none = await desk.call("search", pattern="miss")
    assert (none.success, none.output, none.summary) == (True, "", "no match")


async def test_a_bad_pattern_is_the_models_to_mend(bench: Build) -> None:
    desk = bench(Run(stderr=b"regex parse error:\n    (\n    ^\nerror: unclosed group", exit_code=2))
    result = await desk.call("search", pattern="(")
    assert result.error is not None
    assert (result.error.code, result.error.kind) == ("invalid_argument", "parameter")
    assert "unclosed group" in result.error.message


async def test_without_ripgrep_another_way_is_named(bench: Build) -> None:
    desk = bench(Run(status=ExecStatus.NOT_STARTED, exit_code=127))
    result = await desk.call("search", pattern="x")
    assert result.error is not None
    assert (result.error.code, result.recovery_hint) == ("unsupported", "use shell with grep -rn instead")


async def test_diff_shows_the_changes_so_far(bench: Build) -> None:
    desk = bench()
    result = await desk.call("diff")
    assert unwrap(result).startswith("--- a/x\n+++ b/x\n")
    assert desk.box.calls == []
