"""The adapter against a real HTTP server that says what endpoints in the wild say."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.model_server import (
    Answer,
    Json,
    ModelServer,
    Raw,
    Stream,
    call,
    call_delta,
    chunk,
    error,
    say,
    usage_chunk,
)

from corral.errors import ModelError
from corral.llm import OpenAIModel
from corral.schema.messages import FinishReason, Message, ModelReply, ModelRequest, Role, Usage
from corral.schema.tools import SideEffect, ToolCall, ToolSpec

KEY = "sk-corral-0123456789-secret"

SHELL = ToolSpec(
    name="shell",
    description="Run a command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "additionalProperties": False},
    scope="box",
    side_effect=SideEffect.WORKSPACE_WRITE,
    idempotent=False,
    timeout_s=1,
)
REQUEST = ModelRequest(
    messages=(Message(role=Role.SYSTEM, content="be brief"), Message(role=Role.USER, content="list")), tools=(SHELL,)
)


async def ask(
    *answers: Answer, request: ModelRequest = REQUEST, on_text: Callable[[str], None] | None = None, **settings: Any
) -> tuple[ModelReply, ModelServer]:
    settings.setdefault("retries", 0)
    with ModelServer(answers) as server:
        model = OpenAIModel("test-model", api_key=KEY, base_url=server.base_url, **settings)
        try:
            return await model.complete(request, on_text), server
        finally:
            await model.close()


async def fail(*answers: Answer, **settings: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(*answers, **settings)
    return caught.value


async def test_streamed_text_arrives_in_pieces_and_whole() -> None:
    pieces: list[str] = []
    reply, server = await ask(say("hello there"), on_text=pieces.append)
    assert pieces == ["hello", " there"]
    assert reply == ModelReply(
        model="test-model",
        text="hello there",
        finish=FinishReason.STOP,
        usage=Usage(input_tokens=100, output_tokens=10),
        latency_s=reply.latency_s,
    )
    assert server.received[0].body == {
        "model": "test-model",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "list"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "shell", "description": "Run a command.", "parameters": SHELL.parameters},
            }
        ],
    }
    assert server.received[0].path == "/v1/chat/completions"
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"


async def test_streamed_call_is_put_together() -> None:
    reply, _ = await ask(call("shell", {"command": "ls -la"}, text="I look."))
    assert reply.calls == (ToolCall(id="c1", name="shell", arguments={"command": "ls -la"}),)
    assert (reply.text, reply.finish) == ("I look.", FinishReason.CALLS)


async def test_calls_beside_finish_stop_are_calls() -> None:
    reply, _ = await ask(Stream((call_delta(index=0, id="a", name="shell", arguments="{}"), chunk({}, "stop"))))
    assert reply.finish is FinishReason.CALLS


async def test_reasoning_comes_from_fields_and_from_tags() -> None:
    reply, _ = await ask(
        Stream((chunk({"reasoning_content": "let me "}), chunk({"reasoning": "see"}), *say("ok").chunks))
    )
    assert (reply.reasoning, reply.text) == ("let me see", "ok")
    reply, _ = await ask(say("let me think…</think>\nDone.<|im_end|>"))
    assert (reply.reasoning, reply.text) == ("let me think…", "Done.")


async def test_missing_usage_is_estimated_and_said_so() -> None:
    reply, _ = await ask(Stream((chunk({"content": "x" * 400}), chunk({}, "stop"))))
    assert reply.usage.reported is False
    assert reply.usage.output_tokens == 101
    assert reply.usage.input_tokens > 20


async def test_usage_knows_cached_tokens() -> None:
    reply, _ = await ask(Stream((chunk({"content": "x"}), chunk({}, "stop"), usage_chunk(1000, 20, 800))))
    assert reply.usage == Usage(input_tokens=1000, output_tokens=20, cached_tokens=800)


async def test_endpoint_that_does_not_stream_is_read_whole() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "", "type": "function", "function": {"name": "shell", "arguments": '{"command":"a"}'}},
            {"id": "", "type": "function", "function": {"name": "shell", "arguments": '{"command":"b"}'}},
        ],
    }
    body = {
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    reply, _ = await ask(Json(body))
    assert [one.arguments["command"] for one in reply.calls] == ["a", "b"]
    assert len({one.id for one in reply.calls} - {""}) == 2
    assert reply.usage == Usage(input_tokens=7, output_tokens=3)


async def test_history_is_always_valid_for_a_strict_endpoint() -> None:
    calls = (
        ToolCall(id="a", name="shell", arguments={"command": "ls"}),
        ToolCall(id="b", name="shell; rm -rf /", problem="invalid_arguments: not JSON"),
        ToolCall(id="c", name="", problem="malformed_tool_call: no name"),
    )
    messages = (
        Message(role=Role.USER, content="half \ud83c pair"),
        Message(role=Role.ASSISTANT, calls=calls, reasoning="hidden"),
        *(Message(role=Role.TOOL, call_id=one.id, content=f"result {one.id}") for one in calls),
        Message(role=Role.ASSISTANT),
    )
    _, server = await ask(say("ok"), request=ModelRequest(messages=messages))

    def function(name: str, arguments: str) -> dict[str, Any]:
        return {"name": name, "arguments": arguments}

    assert server.received[0].body["messages"] == [
        {"role": "user", "content": "half \ufffd pair"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": function("shell", '{"command": "ls"}')},
                {"id": "b", "type": "function", "function": function("shell__rm_-rf__", "{}")},
                {"id": "c", "type": "function", "function": function("unnamed", "{}")},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "result a"},
        {"role": "tool", "tool_call_id": "b", "content": "result b"},
        {"role": "tool", "tool_call_id": "c", "content": "result c"},
        {"role": "assistant", "content": "(no answer)"},
    ]
    assert "tools" not in server.received[0].body


async def test_ids_the_endpoint_uses_twice_are_made_unique() -> None:
    with ModelServer([call("shell", {"command": "ls"}, id="call_0")]) as server:
        model = OpenAIModel("m", api_key=KEY, base_url=server.base_url)
        ids = {(await model.complete(REQUEST)).calls[0].id for _ in range(3)}
        await model.close()
    assert len(ids) == 3


ERRORS = [
    (error(401, "Incorrect API key provided"), "auth", False),
    (error(403, "forbidden"), "auth", False),
    (error(404, "The model `gpt-9` does not exist", code="model_not_found"), "not_found", False),
    (error(400, "model 'nope' not found"), "not_found", False),
    (Raw(b"<html>404</html>", status=404), "not_found", False),
    (error(429, "Rate limit reached: tokens per min. Limit 10, requested 12"), "rate_limit", True),
    (error(429, "You exceeded your current quota", code="insufficient_quota"), "quota", False),
    (error(500, "boom"), "server_error", True),
    (Raw(b"Bad Gateway", "text/plain", 502), "server_error", True),
    (error(529, "overloaded"), "server_error", True),
    (error(504, "gateway"), "timeout", True),
    (error(400, "messages[3].role: invalid"), "bad_request", False),
    (error(400, "registry/llama does not support tools"), "no_tool_support", False),
    (error(400, '"auto" tool choice requires --enable-auto-tool-choice'), "no_tool_support", False),
    (error(404, "No endpoints found that support tool use"), "no_tool_support", False),
    (error(500, "tools param requires --jinja flag"), "no_tool_support", False),
    (Raw(b"<html>hello</html>"), "bad_response", True),
    (Json({"error": "no choices here"}), "server_error", True),
    (Json({"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}), "context_overflow", False),
    (Json(["a list"]), "server_error", True),
    (Raw(b"{broken", "application/json"), "bad_response", True),
    (Stream(("not json",)), "bad_response", True),
    (Stream(()), "bad_response", True),
    (Stream(({"error": {"message": "engine died"}},)), "server_error", True),
    (Stream((chunk({"content": "half"}),), cut=True), "unreachable", True),
    (Stream((chunk({}, "stop"), usage_chunk(5, 0))), "empty_response", True),
    (Stream((chunk({"content": "  \n"}), chunk({}, "stop"))), "empty_response", True),
    (Stream((chunk({"reasoning_content": "hm"}), chunk({}, "stop"))), "empty_response", True),
    (Stream((call_delta(index=0, arguments='{"x":1}'),)), "bad_response", True),
]


@pytest.mark.parametrize(("answer", "code", "transient"), ERRORS)
async def test_failure_is_told_by_cause(answer: Answer, code: str, transient: bool) -> None:
    failure = await fail(answer)
    assert (failure.code, failure.transient) == (code, transient)
    assert failure.hint
    assert "\n" not in failure.message
    assert failure.__cause__ is None


OVERFLOWS = [
    error(400, "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens"),
    error(400, "prompt is too long: 210000 tokens > 200000 maximum"),
    error(400, "Input exceeds the context window of this model."),
    error(413, "exceeded max context length"),
    error(400, "the request is 9000 tokens. Please reduce the length of the messages or completion."),
    error(400, "request too large", type="exceed_context_size_error"),
    error(400, "too large", code="context_length_exceeded"),
    error(500, "the request exceeds the available context size. try increasing the context size"),
    Stream((chunk({}, "length"), usage_chunk(8192, 0))),
    Stream(({"error": {"message": "maximum context length is 10"}},)),
]


@pytest.mark.parametrize("answer", OVERFLOWS)
async def test_context_overflow_is_known_in_every_wording(answer: Answer) -> None:
    failure = await fail(answer)
    assert (failure.code, failure.transient) == ("context_overflow", False)


@pytest.mark.parametrize(
    "message",
    ["invalid context parameter", "window must be positive", "maximum length of name is 64", "too many tools"],
)
async def test_other_refusals_are_no_overflow(message: str) -> None:
    assert (await fail(error(400, message))).code == "bad_request"


async def test_useless_answer_tells_what_it_used() -> None:
    failure = await fail(Stream((chunk({"reasoning_content": "hm"}), chunk({}, "stop"), usage_chunk(50, 9))))
    assert failure.tokens == (50, 9)


async def test_retry_after_is_told() -> None:
    assert (await fail(error(429, "slow", headers={"retry-after": "7"}))).retry_after_s == 7
    assert (await fail(error(429, "slow", headers={"retry-after-ms": "1500"}))).retry_after_s == 1.5
    assert (await fail(error(429, "slow", headers={"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}))).retry_after_s == 0
    assert (await fail(error(429, "slow", headers={"retry-after": "soon"}))).retry_after_s is None


async def test_short_trouble_is_retried() -> None:
    reply, server = await ask(error(503, "busy", headers={"retry-after-ms": "1"}), say("ok"), retries=1)
    assert (reply.text, len(server.received)) == ("ok", 2)


async def test_unreachable_endpoint_is_told() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    model = OpenAIModel("m", api_key=KEY, base_url=f"http://127.0.0.1:{port}/v1", retries=0)
    with pytest.raises(ModelError, match=f"127.0.0.1:{port} cannot be reached") as caught:
        await model.complete(REQUEST)
    await model.close()
    assert caught.value.code == "unreachable"


async def test_silent_endpoint_times_out() -> None:
    started = time.monotonic()
    failure = await fail(Stream((chunk({"content": "a"}), 30.0)), idle_s=0.2)
    assert failure.code == "timeout"
    failure = await fail(Stream((chunk({"content": "a"}),) * 200, pause_s=0.02), timeout_s=0.3)
    assert failure.code == "timeout"
    assert failure.message.endswith("within 0.3 s")
    assert time.monotonic() - started < 5


async def test_cancelling_closes_the_connection() -> None:
    with ModelServer([Stream((chunk({"content": "a"}),) * 1000, pause_s=0.02)]) as server:
        model = OpenAIModel("m", api_key=KEY, base_url=server.base_url)
        first = asyncio.Event()
        task = asyncio.create_task(model.complete(REQUEST, lambda text: first.set()))
        await asyncio.wait_for(first.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await model.close()


async def test_parameters_an_endpoint_does_not_take_are_left_out_from_then_on() -> None:
    def strict(body: dict[str, Any]) -> Answer:
        if "stream_options" in body:
            return error(400, "Unrecognized request argument supplied: stream_options")
        if "max_tokens" in body:
            return error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        if body.get("temperature") is not None:
            return error(
                400, "Unsupported value: 'temperature' does not support 0.2. Only the default (1) is supported."
            )
        return say("ok")

    request = REQUEST.model_copy(update={"max_output_tokens": 100, "temperature": 0.2})
    with ModelServer([strict]) as server:
        model = OpenAIModel("m", api_key=KEY, base_url=server.base_url, retries=0)
        assert (await model.complete(request)).text == "ok"
        assert (await model.complete(request)).text == "ok"
        await model.close()
    assert len(server.received) == 5
    assert server.received[-1].body.keys() == {"model", "messages", "stream", "tools", "max_completion_tokens"}


async def test_parameter_that_is_refused_for_its_value_is_not_dropped() -> None:
    with ModelServer([error(400, "max_tokens is too large: 100000")]) as server:
        model = OpenAIModel("m", api_key=KEY, base_url=server.base_url, retries=0)
        with pytest.raises(ModelError, match="too large"):
            await model.complete(REQUEST.model_copy(update={"max_output_tokens": 100_000}))
        await model.close()
    assert len(server.received) == 1


async def test_key_never_appears_in_errors_or_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with ModelServer([error(401, f"Incorrect API key provided: {KEY}"), Stream(("broken " + KEY,))]) as server:
        model = OpenAIModel("m", api_key=KEY, base_url=server.base_url.replace("//", "//user:pass@"), retries=0)
        texts = [repr(model), str(model), model.endpoint]
        for _ in range(2):
            with pytest.raises(ModelError) as caught:
                await model.complete(REQUEST)
            texts += [str(caught.value), repr(caught.value), str(caught.value.hint), caught.value.message]
            texts += traceback.format_exception(caught.value)
        await model.close()
    assert model.endpoint == server.base_url[7:-3]
    assert [text for text in [*texts, caplog.text] if KEY in text] == []
    assert [text for text in texts if "user:pass" in text] == []


async def test_message_of_an_endpoint_cannot_reach_the_terminal_raw() -> None:
    failure = await fail(error(400, "bad \x1b[2J\u202e" + "x" * 5000))
    assert failure.message.isprintable()
    assert len(failure.message) < 700


@pytest.mark.parametrize(
    "nonsense",
    [
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": 5, "tool_calls": "x", "reasoning_content": []}}]},
        {"choices": [{"delta": {"tool_calls": [None, {"function": None}, {"function": {"name": None}}]}}]},
        {"model": 7, "usage": {"prompt_tokens": "many"}, "choices": {}},
    ],
)
async def test_chunks_that_make_no_sense_are_passed_over(nonsense: dict[str, Any]) -> None:
    reply, _ = await ask(Stream((nonsense, *say("fine").chunks, nonsense)))
    assert reply.text == "fine"
