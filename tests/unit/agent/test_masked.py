"""No message takes a secret to a model, whoever wrote it there."""

from __future__ import annotations

from tests.support.life_box import LifeBox
from tests.unit.agent.conftest import RunAgent, call, finish, says
from tests.unit.tools.fake_box import Run

from corral.redact import Redactor
from corral.schema.events import ModelCalled

VALUE = "Zk83-fLs03kf.slw93jd"
MASKED = "[secret:db#1~583201]"


async def test_no_message_takes_a_secret_to_a_model(run_agent: RunAgent) -> None:
    script = [says(call("shell", command="env")), says(text=f"I use {VALUE}"), says(finish()), says(finish())]
    box = LifeBox(Run(stdout=f"A={VALUE}\n".encode()), Run(stdout=VALUE.encode(), exit_code=1), Run())
    redactor = Redactor([("db", VALUE)], mark=583201)
    done = await run_agent(script, box=box, task=f"log in with {VALUE}", until="check", redactor=redactor)
    told = [message.content for message in done.seen if message.role != "assistant"]
    assert [text for text in told if VALUE in text] == []
    assert (done.seen[1].content.startswith(f"log in with {MASKED}"), sum(MASKED in text for text in told)) == (True, 3)
    # Its own words come back to it as they were; the record has them masked.
    assert any(VALUE in message.content for message in done.seen)
    assert VALUE not in "".join(event.model_dump_json() for event in done.events)


async def test_the_record_says_what_the_model_saw_masked(run_agent: RunAgent) -> None:
    redactor = Redactor([("db", VALUE)], mark=583201)
    done = await run_agent([says(finish())], task=f"log in with {VALUE}", redactor=redactor)
    (called,) = done.payloads(ModelCalled)
    assert called.added[1].text == f"log in with {MASKED}"
