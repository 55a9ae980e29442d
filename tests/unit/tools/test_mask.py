"""What a model, a person and the record get of a call that has a secret in it; and what the box gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.tools.conftest import Bench
from tests.unit.tools.fake_box import Run

from corral.errors import ToolError
from corral.redact import Redactor
from corral.schema.policy import ApprovalAnswer, ApprovalRequest, Preset
from corral.schema.tools import SideEffect, ToolKind, ToolResult, ToolSpec, ToolStatus
from corral.tools import Tool, ToolContext, render_result

Build = Callable[..., Bench]
VALUE = "Zk83-fLs03kf.slw93jd"
KEY = "ghp_" + "a1B2" * 9
MASKED = "[secret:db#1~583201]"


def redactor() -> Redactor:
    return Redactor([("db", VALUE)], mark=583201)


async def test_a_model_gets_no_secret(bench: Build) -> None:
    desk = bench(Run(stdout=f"{VALUE} {KEY}\n".encode(), stderr=VALUE.encode(), cwd=f"/{VALUE}"), redactor=redactor())
    told = render_result(await desk.call("shell", command="env"))
    assert (VALUE in told, KEY in told, told.count(MASKED)) == (False, False, 3)
    assert "[secret:github-token#1~583201]" in told


async def test_colours_do_not_hide_a_secret(bench: Build) -> None:
    coloured = f"{VALUE[:5]}\x1b[31m{VALUE[5:]}\x1b[0m"
    desk = bench(Run(stdout=coloured.encode()), redactor=redactor())
    assert MASKED in render_result(await desk.call("shell", command="grep --color"))


async def test_a_secret_across_the_border_of_what_is_shown_is_masked(bench: Build) -> None:
    # The text is masked before it is cut.
    desk = bench(Run(stdout=b"x" * 16_000 + VALUE.encode() * 200 + b"y" * 16_000), redactor=redactor())
    told = render_result(await desk.call("shell", command="cat"))
    assert [part for part in (VALUE[:12], VALUE[-12:]) if part in told] == []


async def test_the_words_of_an_error_are_masked(bench: Build) -> None:
    async def fail(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        raise ToolError(f"cannot open {VALUE!r}", hint=f"try {KEY}", data={"near": [VALUE]})

    spec = ToolSpec(
        name="own",
        description="a tool",
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
        scope="host",
        side_effect=SideEffect.WORKSPACE_WRITE,
        idempotent=False,
        timeout_s=5.0,
        kind=ToolKind.CALL,
    )
    desk = bench(tools=(Tool(spec, fail),), redactor=redactor())
    told = render_result(await desk.call("own"))
    assert (VALUE in told, KEY in told) == (False, False)


async def test_the_kept_output_is_raw_and_masked_when_read(bench: Build) -> None:
    desk = bench(Run(stdout=f"{VALUE}\n".encode() * 4000), redactor=redactor())
    await desk.call("shell", command="cat")
    (kept,) = [path for path, _ in desk.outputs.names()]
    told = render_result(await desk.call("read_file", path=kept, limit=3))
    assert (VALUE in told, told.count(MASKED)) == (False, 3)


async def test_an_approver_sees_no_secret_and_the_digest_is_of_what_runs(bench: Build) -> None:
    asked: list[ApprovalRequest] = []

    class Yes:
        async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
            asked.append(request)
            return ApprovalAnswer(approved=True, digest=request.digest, by="ada")

    desk = bench(Run(), Run(), preset=Preset.ON_REQUEST, approver=Yes(), redactor=redactor())
    await desk.call("shell", command=f"curl -u me:{VALUE}")
    await desk.call("shell", command=f"curl -u me:{MASKED[:-1]}")
    shown = [one.call.arguments["command"] for one in asked]
    assert shown == [f"curl -u me:{MASKED}", f"curl -u me:{MASKED[:-1]}"]
    assert asked[0].digest != asked[1].digest
    assert desk.box.calls[0][1][0] == f"curl -u me:{VALUE}"


async def test_an_approver_sees_no_secret(bench: Build) -> None:
    seen: list[str] = []

    class No:
        async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
            seen.append(request.model_dump_json())
            return ApprovalAnswer(approved=False, digest=request.digest)

    desk = bench(preset=Preset.ON_REQUEST, approver=No(), redactor=redactor())
    result = await desk.call("shell", command=f"echo {VALUE} > f")
    assert result.status is ToolStatus.DENIED
    assert len(seen) == 1 and VALUE not in seen[0] and MASKED in seen[0]


async def test_a_placeholder_is_not_written_back(bench: Build) -> None:
    desk = bench(Run(), Run(), redactor=redactor())
    refused = await desk.call("shell", command=f"echo {MASKED} > .env")
    assert refused.error is not None
    assert (refused.error.code, desk.box.calls) == ("masked_argument", [])
    # Anybody can write what only looks like one.
    assert (await desk.call("shell", command="echo [secret:db#1~000001]")).success


async def test_no_secret_gets_into_the_record_of_a_call(bench: Build) -> None:
    desk = bench(Run(stdout=VALUE.encode()), redactor=redactor())
    await desk.call("shell", command=f"echo {VALUE} {KEY}")
    text = desk.record.read_text()
    assert (VALUE in text, KEY in text, MASKED in text) == (False, False, True)
