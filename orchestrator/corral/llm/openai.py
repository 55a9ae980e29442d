"""The adapter for any OpenAI-compatible endpoint, over the `openai` client. The only module that imports it, and late:
the import takes longer than `corral --help` may."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from corral.errors import ModelError
from corral.llm.client import OnText
from corral.llm.failure import classify, describe_body, fail, parse_retry_after
from corral.llm.parsing.answer import Answer, AnswerBuilder, read_completion
from corral.llm.usage import estimate_usage, find_cost
from corral.llm.wire import encode_messages, encode_tools, estimate_tokens
from corral.schema.messages import FinishReason, ModelReply, ModelRequest

if TYPE_CHECKING:
    from openai import AsyncOpenAI

DEFAULT_ENDPOINT = "api.openai.com"
_CONNECT_S = 10.0
_NOT_TAKEN = re.compile(
    r"unsupported|not supported|unrecognized|unknown|unexpected|not permitted|not allowed|extra inputs|only the def",
    re.IGNORECASE,
)
_LENGTH_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class OpenAIModel:
    """One model at one endpoint. `timeout_s` bounds a whole request, `idle_s` each wait for the next piece of it.

    `retries` are for connection failures, 429 and 5xx before the answer begins, with backoff and Retry-After, inside
    `timeout_s`.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str | None = None,
        timeout_s: float = 600.0,
        idle_s: float = 180.0,
        retries: int = 2,
    ) -> None:
        self._model = model
        self._key = api_key
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._retries = retries
        self._client: AsyncOpenAI | None = None
        self._used_ids: set[str] = set()
        # What this endpoint turned out not to take: name of a parameter to its substitute, or None to leave it out.
        self._substitutes: dict[str, str | None] = {}
        self._length_name = "max_completion_tokens" if base_url is None else "max_tokens"

    def __repr__(self) -> str:
        return f"OpenAIModel({self._model!r}, endpoint={self.endpoint!r})"

    @property
    def name(self) -> str:
        return self._model

    @property
    def endpoint(self) -> str:
        if self._base_url is None:
            return DEFAULT_ENDPOINT
        parts = urlsplit(self._base_url)  # without the user and password an address may hold
        return f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or ""

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> ModelReply:
        started = time.monotonic()
        self._used_ids.update(call.id for message in request.messages for call in message.calls)
        await asyncio.to_thread(_load_client)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._ask(request, on_text)
        except TimeoutError:
            raise fail("timeout", f"no whole answer from {self.endpoint} within {self._timeout_s:g} s") from None
        self._used_ids.update(call.id for call in answer.calls)
        return self._finish(request, answer, time.monotonic() - started)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ask(self, request: ModelRequest, on_text: OnText | None) -> Answer:
        while True:
            parameters = self._parameters(request)
            try:
                return await self._send(parameters, on_text)
            except ModelError as error:
                if error.code != "bad_request" or not self._learn(parameters, error.message):
                    raise

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "model": self._model,
            "messages": encode_messages(request.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            parameters["tools"] = encode_tools(request.tools)
        if request.max_output_tokens is not None:
            parameters[self._length_name] = request.max_output_tokens
        if request.temperature is not None:
            parameters["temperature"] = request.temperature
        for name, substitute in self._substitutes.items():
            value = parameters.pop(name, None)
            if substitute is not None and value is not None:
                parameters[substitute] = value
        return parameters

    def _learn(self, parameters: dict[str, Any], message: str) -> bool:
        """Whether the refusal names a parameter we can do without; then it is left out from now on."""
        if not _NOT_TAKEN.search(message):
            return False
        for name in ("stream_options", "temperature", *_LENGTH_NAMES):
            if name in parameters and re.search(rf"\b{name}\b", message):
                substitute = _LENGTH_NAMES.get(name)
                # Both names refused: without a limit then.
                self._substitutes[name] = None if substitute in self._substitutes else substitute
                return True
        return False

    async def _send(self, parameters: dict[str, Any], on_text: OnText | None) -> Answer:
        import httpx2  # late: as in _load_client
        import openai

        client = self._connect()
        try:
            raw = await client.chat.completions.with_raw_response.create(**parameters)
            kind = raw.headers.get("content-type", "")
            if "json" in kind:
                return read_completion(self._load(await raw.http_response.aread()), self._used_ids)
            if "event-stream" not in kind:
                await raw.http_response.aclose()
                raise fail("bad_response", f"{self.endpoint} answered with {kind or 'no content type'!r}")
            async with raw.parse() as stream:
                return await self._read(stream, on_text)
        except openai.APITimeoutError:
            raise fail("timeout", f"{self.endpoint} sent nothing for {self._idle_s:g} s") from None
        except openai.APIStatusError as error:
            text = f"{error.message} {describe_body(error.body)}"
            raise fail(
                classify(error.status_code, text),
                f"{self.endpoint} answered {error.status_code}: {describe_body(error.body) or error.message}",
                secret=self._key,
                retry_after_s=parse_retry_after(error.response.headers),
            ) from None
        except (openai.APIConnectionError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            cause = error.__cause__ or error
            raise fail("unreachable", f"{self.endpoint} cannot be reached: {cause}", secret=self._key) from None
        except openai.APIError as error:  # an error object inside a stream
            text = f"{error.message} {describe_body(error.body)}"
            raise fail(classify(None, text), f"{self.endpoint} ended its answer: {text}", secret=self._key) from None
        except (json.JSONDecodeError, UnicodeDecodeError, openai.OpenAIError) as error:
            raise fail("bad_response", f"{self.endpoint} sent what is not JSON: {error}", secret=self._key) from None

    def _connect(self) -> AsyncOpenAI:
        if self._client is None:
            import httpx2  # late: as above
            import openai

            self._client = openai.AsyncOpenAI(
                api_key=self._key,
                base_url=self._base_url or f"https://{DEFAULT_ENDPOINT}/v1",
                max_retries=self._retries,
                timeout=httpx2.Timeout(self._idle_s, connect=_CONNECT_S),
            )
        return self._client

    async def _read(self, stream: AsyncIterator[Any], on_text: OnText | None) -> Answer:
        builder = AnswerBuilder()
        async for chunk in stream:
            text = builder.feed(_to_mapping(chunk))
            if text and on_text is not None:
                on_text(text)
        if builder.chunks == 0:
            raise fail("bad_response", f"{self.endpoint} sent an empty stream")
        return builder.build(self._used_ids)

    def _load(self, body: bytes) -> Mapping[str, Any]:
        data = json.loads(body)
        if not isinstance(data, dict) or "choices" not in data:
            text = describe_body(data)
            raise fail(classify(None, text), f"{self.endpoint} sent no answer: {text}", secret=self._key)
        return data

    def _finish(self, request: ModelRequest, answer: Answer, latency_s: float) -> ModelReply:
        usage = answer.usage or estimate_usage(estimate_tokens(request), answer.chars)
        reply = ModelReply(
            model=answer.model or self._model,
            text=answer.text,
            calls=answer.calls,
            reasoning=answer.reasoning,
            finish=answer.finish,
            usage=usage,
            cost_usd=find_cost(answer.model or self._model, usage, self._base_url),
            latency_s=round(latency_s, 3),
        )
        if reply.calls or reply.text.strip():
            return reply
        raise self._refuse_empty(reply)

    def _refuse_empty(self, reply: ModelReply) -> ModelError:
        code, message = "empty_response", f"{self._model} answered with neither text nor a call"
        if reply.finish is FinishReason.LENGTH and not reply.reasoning:
            code, message = "context_overflow", f"{self._model} had no room left to answer"
        elif reply.reasoning:
            message = f"{self._model} only reasoned, it gave no answer"
        error = fail(code, message)
        error.tokens = (reply.usage.input_tokens, reply.usage.output_tokens)
        error.cost_usd = reply.cost_usd
        return error


def _load_client() -> None:
    """In a thread of its own: the box starts meanwhile."""
    import openai  # noqa: F401  # late: over half a second, and only a run that asks a model needs it


def _to_mapping(chunk: Any) -> Mapping[str, Any]:
    """A chunk as plain values: the client's models are not validated, so their attributes promise nothing."""
    dumped = chunk.model_dump(warnings=False, exclude_unset=True) if hasattr(chunk, "model_dump") else chunk
    return dumped if isinstance(dumped, Mapping) else {}
