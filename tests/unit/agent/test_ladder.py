"""Repetition as the model meets it: note, cached answer, refusal, last answer. Cases C139 and C140."""

from __future__ import annotations

from tests.support.life_box import LifeBox
from tests.unit.agent.conftest import Done, RunAgent, call, finish, says
from tests.unit.tools.fake_box import Run

from corral.llm import Script, ScriptedModel, ScriptedReply
from corral.schema.events import GuardTripped, ToolFinished, ToolStarted


def cycle(*replies: ScriptedReply, rounds: int = 8) -> list[ScriptedReply]:
    return list(replies) * rounds


def guards(done: Done) -> list[tuple[int, str]]:
    return [(one.step, one.action) for one in done.payloads(GuardTripped)]


async def test_reading_the_same_file_climbs_the_ladder(run_agent: RunAgent) -> None:
    read = says(call("read_file", path="a"), text="hm")
    done = await run_agent(ScriptedModel(Script(replies=(read,), at_end="repeat")), files={"a": b"x\n"})
    assert done.end == ("stuck", "hm")
    assert guards(done) == [(3, "answer_cached"), (4, "refuse"), (5, "refuse"), (6, "last_answer")]
    assert [name for name, _ in done.box.calls] == ["read_file", "read_file"]
    third, fourth = done.told[2:4]
    assert third.startswith("status: ok") and "next: You have made this very call before" in third
    assert "this very call was made 4 times without anything changing" in fourth
    # Every answer is in the record, also where nothing ran.
    assert [(one.call_id, one.status) for one in done.payloads(ToolFinished)] == [
        ("s1-1", "ok"),
        ("s2-1", "ok"),
        ("s3-1", "ok"),
        ("s4-1", "not_executed"),
        ("s5-1", "not_executed"),
        ("s6-1", "not_executed"),
        ("s7-1", "not_executed"),
    ]
    assert "Tools are off now" in done.requests[-1].messages[-1].content


async def test_a_command_runs_a_third_time_and_is_refused_the_fourth(run_agent: RunAgent) -> None:
    box = LifeBox(*[Run(stdout=b"same\n")] * 3)
    done = await run_agent([*cycle(says(call("shell", command="make")), rounds=4), says(finish("out"))], box=box)
    assert done.end == ("finished", "out")
    assert [("next: You have" in told, "repeated_call" in told) for told in done.told] == [
        (False, False),
        (False, False),
        (True, False),
        (False, True),
    ]


async def test_a_changing_result_is_never_called_the_same(run_agent: RunAgent) -> None:
    box = LifeBox(*[Run(stdout=word.encode()) for word in ("one", "two", "three", "four", "five")])
    done = await run_agent([*cycle(says(call("shell", command="poll")), rounds=5), says(finish())], box=box)
    assert done.end[0] == "finished" and guards(done) == []
    assert [told for told in done.told if "next:" in told] == []


async def test_alternation_is_noticed_within_eight_steps(run_agent: RunAgent) -> None:
    script = cycle(says(call("read_file", path="a.txt")), says(call("read_file", path="b.txt")))
    done = await run_agent(script, files={"a.txt": b"a\n", "b.txt": b"b\n"})
    assert done.end[0] == "stuck"
    assert guards(done)[0] == (5, "answer_cached") and (7, "refuse") in guards(done)


async def test_a_round_of_three_is_noticed_within_eight_steps(run_agent: RunAgent) -> None:
    script = cycle(*(says(call("read_file", path=name)) for name in "abc"))
    done = await run_agent(script, files={name: name.encode() for name in "abc"})
    assert done.end[0] == "stuck"
    assert guards(done)[0] == (7, "answer_cached")


async def test_a_counter_in_a_comment_does_not_hide_a_repetition(run_agent: RunAgent) -> None:
    box = LifeBox(*[Run(stdout=b"1 failed\n", exit_code=1)] * 9)
    script = [says(call("shell", command=f"pytest{' ' * number} -q  # attempt {number}")) for number in range(1, 9)]
    done = await run_agent(script, box=box)
    assert done.end[0] == "stuck"
    assert len(done.payloads(ToolStarted)) == 3


async def test_an_alias_and_a_default_do_not_hide_a_repetition(run_agent: RunAgent) -> None:
    script = [
        says(call("shell", command="make")),
        says(call("SHELL", command="make", timeout_s=120)),
        says(call("functions.shell", command="make", timeout_s="120")),
        says(call("shell", command="make", timeout_s=None)),
        says(finish()),
    ]
    done = await run_agent(script, box=LifeBox(*[Run(stdout=b"same\n")] * 3))
    assert guards(done) == [(4, "refuse")]


async def test_errors_with_changing_numbers_are_the_same_error(run_agent: RunAgent) -> None:
    text = 'File "/tmp/tmp{0}/x.py", line {0}1\nSyntaxError: invalid syntax (0.{0}3 s)\n'
    box = LifeBox(*[Run(stderr=text.format(number).encode(), exit_code=1) for number in range(1, 9)])
    done = await run_agent(cycle(says(call("shell", command="python3 x.py"))), box=box)
    assert done.end[0] == "stuck"
    assert len(done.payloads(ToolStarted)) == 3


async def test_a_cached_answer_is_never_older_than_a_write(run_agent: RunAgent) -> None:
    read, write = call("read_file", path="a"), call("shell", command="touch b")
    box = LifeBox(Run(), Run(), Run())
    script = [says(read), says(write), says(read), says(write), says(read), says(finish())]
    done = await run_agent(script, box=box, files={"a": b"x\n"})
    # The third read ran: the command before it might have changed the file.
    assert [name for name, _ in box.calls] == ["read_file", "shell", "read_file", "shell", "read_file"]
    assert "next: You have made this very call before" in done.told[4]


async def test_tests_between_edits_are_no_repetition(run_agent: RunAgent) -> None:
    box = LifeBox(*[Run(stdout=b"1 failed\n", exit_code=1)] * 5)
    script = []
    for number in range(5):
        script += [
            says(call("write_file", path="a", content=f"x{number}", overwrite=True)),
            says(call("shell", command="pytest")),
        ]
    done = await run_agent([*script, says(finish("gave up"))], box=box)
    assert done.end == ("finished", "gave up") and guards(done) == []


async def test_finish_is_never_a_repetition(run_agent: RunAgent) -> None:
    box = LifeBox(Run(exit_code=1), Run(exit_code=1), Run())
    done = await run_agent(cycle(says(finish("same words")), rounds=3), box=box, until="make test")
    assert done.end == ("finished", "same words")


async def test_another_spelling_of_a_path_does_not_hide_a_repetition(run_agent: RunAgent) -> None:
    names = ["src", "./src", "src/", "src/../src"]
    box = LifeBox()
    box._name = lambda path: "/workspace/src"  # type: ignore[method-assign]
    done = await run_agent([*(says(call("list_files", path=name)) for name in names), says(finish())], box=box)
    assert guards(done) == [(3, "answer_cached"), (4, "refuse")]
