from __future__ import annotations

from pathlib import Path

import pytest

from corral.errors import ConfigError, ModelError
from corral.llm import Script, ScriptedCall, ScriptedModel, ScriptedReply, load_script
from corral.llm.scripted import Expectation, ScriptedError
from corral.schema.messages import FinishReason, Message, ModelReply, ModelRequest, Role
from corral.schema.tools import ToolCall


def request(*texts: str) -> ModelRequest:
    return ModelRequest(messages=tuple(Message(role=Role.USER, content=text) for text in texts))


async def test_script_is_said_in_order_then_fails() -> None:
    look = ScriptedReply(text="I look.", calls=(ScriptedCall(name="shell", arguments={"command": "ls"}),))
    model = ScriptedModel([look, ScriptedReply(text="done")])
    shown: list[str] = []
    first = await model.complete(request("go"), shown.append)
    assert first == ModelReply(
        model="scripted",
        text="I look.",
        calls=(ToolCall(id="call_1", name="shell", arguments={"command": "ls"}),),
        finish=FinishReason.CALLS,
        usage=first.usage,
        cost_usd=0.0,
    )
    assert first.usage.reported is False
    assert shown == ["I look."]
    assert (await model.complete(request("go"))).finish is FinishReason.STOP
    with pytest.raises(ModelError, match="the script has 2 replies, and the run asks for one more") as caught:
        await model.complete(request("go"))
    assert (caught.value.code, caught.value.transient) == ("script", False)
    assert len(model.requests) == 3


async def test_script_can_go_on_for_ever_with_new_ids() -> None:
    reply = ScriptedReply(calls=(ScriptedCall(name="shell"),))
    model = ScriptedModel(Script(replies=(reply,), at_end="repeat"))
    ids = [(await model.complete(request("go"))).calls[0].id for _ in range(3)]
    assert ids == ["call_1", "call_2", "call_3"]


async def test_script_can_write_carelessly_and_fail() -> None:
    model = ScriptedModel(
        [
            ScriptedReply(calls=(ScriptedCall(name="shell", raw='{"command": '),)),
            ScriptedReply(error=ScriptedError(code="rate_limit")),
        ]
    )
    (call,) = (await model.complete(request("go"))).calls
    assert call.problem is not None
    with pytest.raises(ModelError) as caught:
        await model.complete(request("go"))
    assert (caught.value.code, caught.value.transient) == ("rate_limit", True)


@pytest.mark.parametrize(
    ("expect", "miss"),
    [
        (Expectation(contains=("one", "two"), last_contains=("two",), lacks=("three",), tools=()), None),
        (Expectation(contains=("three",)), "the conversation should have 'three'; the last message is 'two'"),
        (Expectation(lacks=("one",)), "the conversation should not have 'one'"),
        (Expectation(last_contains=("one",)), "the last message should have 'one'; the last message is 'two'"),
        (Expectation(last_lacks=("two",)), "the last message should not have 'two'"),
        (Expectation(tools=("shell",)), "the tools should be ['shell'], they are []"),
    ],
)
async def test_script_checks_what_it_is_shown(expect: Expectation, miss: str | None) -> None:
    model = ScriptedModel([ScriptedReply(text="ok", expect=expect)])
    if miss is None:
        assert (await model.complete(request("one", "two"))).text == "ok"
        return
    with pytest.raises(ModelError) as caught:
        await model.complete(request("one", "two"))
    assert caught.value.message == f"reply 1 of the script: {miss}"


def test_script_is_loaded_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text(
        '{"replies": [{"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}], "at_end": "repeat"}'
    )
    finish = ScriptedCall(name="finish", arguments={"summary": "done"})
    assert load_script(file) == Script(replies=(ScriptedReply(calls=(finish,)),), at_end="repeat")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"replies": []}', "replies: Tuple should have at least 1 item"),
        ('{"replies": [{"txt": "x"}]}', "replies.0.txt: Extra inputs are not permitted"),
        ('{"replies": [{"calls": [{"name": 1}]}]}', "replies.0.calls.0.name: Input should be a valid string"),
        ("{", "the file: Invalid JSON"),
    ],
)
def test_mistake_in_a_script_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "script.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_script(file)
    assert message in caught.value.message


def test_missing_script_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_script(tmp_path / "none.json")
