"""What counts as the same call, the same result, a change of state."""

from __future__ import annotations

from typing import Any

import pytest

from corral.agent.repetition import Repetition, Rung, result_digest, signature, squeeze
from corral.schema.tools import Artifact, ErrorInfo, SideEffect, ToolCall, ToolKind, ToolResult, ToolSpec, ToolStatus


def spec(name: str, kind: ToolKind, side_effect: SideEffect) -> ToolSpec:
    return ToolSpec(
        name=name,
        description="",
        parameters={},
        scope="workspace",
        side_effect=side_effect,
        idempotent=False,
        timeout_s=1,
        kind=kind,
    )


READ = spec("read_file", ToolKind.READ, SideEffect.READ_ONLY)
EDIT = spec("edit_file", ToolKind.WRITE, SideEffect.WORKSPACE_WRITE)
SHELL = spec("shell", ToolKind.SHELL, SideEffect.WORKSPACE_WRITE)


def made(kind: ToolSpec, **arguments: Any) -> ToolCall:
    return ToolCall(id="c", name=kind.name, arguments=arguments)


def gave(output: str = "", *, success: bool = True, changed: bool = False, **data: Any) -> ToolResult:
    artifacts = (Artifact(path="a", size=1),) if changed else ()
    return ToolResult(success=success, status=ToolStatus.OK, output=output, artifacts=artifacts, data=data)


def climb(steps: list[tuple[ToolSpec, ToolCall, ToolResult]]) -> list[Rung]:
    """The rung of each call in a row, all of them run."""
    memory, rungs = Repetition(), []
    for kind, call, result in steps:
        rungs.append(memory.rung(call))
        memory.note(call, result, kind)
    return rungs


F, N, R, L = Rung.FINE, Rung.NOTE, Rung.REFUSE, Rung.LAST_ANSWER


def test_the_same_call_with_the_same_result_climbs() -> None:
    read = (READ, made(READ, path="a"), gave("x"))
    assert climb([read] * 7) == [F, F, N, R, R, L, L]


def test_a_changing_result_starts_anew() -> None:
    call = made(READ, path="log")
    assert climb([(READ, call, gave(word)) for word in "abcdefgh"]) == [F] * 8


def test_a_successful_edit_starts_the_count_anew() -> None:
    tests = (SHELL, made(SHELL, command="make test"), gave("1 failed", success=False, exit_code=1))
    edits = [(EDIT, made(EDIT, path="a", old_string=str(number)), gave("d", changed=True)) for number in range(6)]
    assert climb([one for edit in edits for one in (edit, tests)]) == [F] * 12


def test_an_edit_that_changes_nothing_does_not() -> None:
    tests = (SHELL, made(SHELL, command="make test"), gave("1 failed", success=False, exit_code=1))
    edit = (EDIT, made(EDIT, path="a"), gave("no match", success=False))
    assert climb([tests, edit, tests, edit, tests, edit, tests, edit]) == [F, F, F, F, N, N, R, R]


def test_a_new_command_may_have_changed_something() -> None:
    tests = (SHELL, made(SHELL, command="make test"), gave("1 failed", success=False, exit_code=1))
    seds = [(SHELL, made(SHELL, command=f"sed -i s/{letter}/b/ f"), gave(exit_code=0)) for letter in "acdefg"]
    assert climb([one for sed in seds for one in (tests, sed)]) == [F] * 12


def test_writing_the_same_file_again_and_again_climbs() -> None:
    first = (EDIT, made(EDIT, path="a"), gave("created", changed=True))
    then = (EDIT, made(EDIT, path="a"), gave("unchanged"))
    assert climb([first, then, then, then, then]) == [F, F, F, N, R]


def test_alternation_of_two_reads_is_noticed_within_eight_steps() -> None:
    a, b = ((READ, made(READ, path=name), gave(name)) for name in "ab")
    assert climb([a, b] * 4) == [F, F, F, F, N, N, R, R]


def test_alternation_of_three_reads_is_noticed_within_eight_steps() -> None:
    a, b, c = ((READ, made(READ, path=name), gave(name)) for name in "abc")
    assert climb([a, b, c] * 3) == [F, F, F, F, F, F, N, N, N]


def test_edits_that_undo_each_other_go_round() -> None:
    """Each of them changes the state, and the state comes back."""
    there = (EDIT, made(EDIT, path="a", old_string="1", new_string="2"), gave("-1 +2", changed=True))
    back = (EDIT, made(EDIT, path="a", old_string="2", new_string="1"), gave("-2 +1", changed=True))
    rungs = climb([there, back] * 6)
    assert rungs[:8] == [F, F, F, F, N, N, R, R]
    assert L in rungs


def test_a_refused_call_counts_on() -> None:
    memory = Repetition()
    call, result = made(SHELL, command="date"), gave("x", exit_code=0)
    for _ in range(3):
        memory.note(call, result, SHELL)
    rungs = []
    for _ in range(3):
        rungs.append(memory.rung(call))
        memory.note_refused(call)
    assert rungs == [R, R, L]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pytest  -q\t tests", "pytest -q tests "),
        ("pytest # try 1", "pytest # try 2"),
        ("# first\npytest -q", "# second\npytest   -q"),
        ("make test\n\n\nmake lint", "make test  # now\n make lint"),
        ("ls;# a", "ls;# b"),
    ],
)
def test_white_space_and_comments_do_not_make_a_command_new(one: str, other: str) -> None:
    assert squeeze(one) == squeeze(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('git commit -m "fix #1"', 'git commit -m "fix #2"'),
        ("grep '# TODO' a", "grep '# DONE' a"),
        ("echo 'a  b'", "echo 'a b'"),
        ("echo a#1", "echo a#2"),
        ("echo ${#a}", "echo ${#b}"),
        ("echo \\# a", "echo \\# b"),
        ("cd a\nls", "cd a ls"),
        ('echo "it\'s # 1"', 'echo "it\'s # 2"'),
    ],
)
def test_what_is_quoted_or_no_comment_does(one: str, other: str) -> None:
    assert squeeze(one) != squeeze(other)


def test_the_order_of_arguments_does_not_matter() -> None:
    assert signature(made(READ, path="a", offset=1)) == signature(made(READ, offset=1, path="a"))


FAILURE = 'File "/tmp/{}/x.py", line {}\n  ran 0x{:x} in {} s at {}\nSyntaxError: invalid syntax'


def test_errors_that_differ_only_in_numbers_times_and_temporary_paths_are_the_same() -> None:
    one = gave(FAILURE.format("tmpa81", 12, 0x7FA2, 0.12, "12:30:01"), exit_code=1)
    other = gave(FAILURE.format("pytest-of-x/y", 907, 0xB, 34, "02:03:59"), exit_code=1)
    assert result_digest(one) == result_digest(other)
    assert result_digest(gave("done in 1.2 ms")) == result_digest(gave("done in 3 s"))
    assert result_digest(gave("[main 3fa9c1e] fix")) == result_digest(gave("[main 99bd0aa] fix"))


def test_other_errors_stay_apart() -> None:
    failed = ErrorInfo(kind="parameter", code="not_found", message="there is no 'a'")
    results = [
        gave("NameError: a", exit_code=1),
        gave("NameError: b", exit_code=1),
        gave("NameError: a", exit_code=2),
        gave("NameError: a"),
        ToolResult(success=False, status=ToolStatus.ERROR, error=failed),
        ToolResult(success=False, status=ToolStatus.ERROR, error=failed.model_copy(update={"message": "no 'b'"})),
        ToolResult(success=False, status=ToolStatus.TIMEOUT, error=failed),
    ]
    assert len({result_digest(result) for result in results}) == len(results)
