"""Nothing that must not be seen is written, or told to who watches; digests stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corral.record import RecordLog, load_record, verify_record
from corral.redact import Redactor
from corral.schema import events as ev
from corral.schema.text import digest

from .conftest import run_started, tool_started

VALUE = 'p/a"ss+wörd \\77&x'
KEY = "ghp_" + "a1B2" * 9
PEM = "-----BEGIN PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEAr0ABCDEFGHIJKLMN\n" * 40 + "-----END PRIVATE KEY-----"
CARD = "4111 1111 1111 1111"
SECRETS = {"known": VALUE, "key": KEY, "pem": PEM, "card": CARD, "url": f"https://me:{KEY}@host"}


def write(path: Path, *payloads: ev.Payload) -> str:
    with RecordLog.open(path, redactor=Redactor([("db", VALUE)], mark=583201)) as log:
        told = [log.append(payload, durable=False).model_dump_json() for payload in payloads]
        told += [event.model_dump_json() for event in [log.claim(payloads[-1])] if event]
    assert verify_record(path).ok
    load_record(path)  # every event still has its form
    return path.read_text() + "".join(told)


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_gets_into_the_record(record: Path, name: str) -> None:
    secret = SECRETS[name]
    error = ev.ErrorFacts(kind="unknown", code="x", message=f"in {secret}", location=secret)
    text = write(
        record,
        run_started(f"use {secret} now"),
        tool_started("c1", f"echo '{secret}'"),
        ev.ToolStarted(call_id="c", tool="t", arguments={secret[:200]: {"deep": [f"a\n{secret}", 1]}}),
        ev.ToolFinished(call_id="c", tool="t", status="ok", success=True, output=f"x\n{secret}\n", facts={"f": secret}),
        ev.ErrorRaised(error=error),
        ev.PatchMade(sha256=digest("x"), files=(ev.ChangedFile(path=f"dir/{secret}", change="added"),)),
        ev.ProcessStarted(pid=1, program="curl", argv=("curl", "-u", secret)),
    )
    spelled = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], secret.split("@")[0]}
    assert [form for form in spelled if form in text] == []
    assert "~583201]" in text


def test_digests_stay_as_they_were(record: Path) -> None:
    sha = digest("x")
    with RecordLog.open(record, redactor=Redactor([("odd", sha)])) as log:
        event = log.append(ev.PatchMade(sha256=sha, path=f"at {sha}"))
    assert isinstance(event.payload, ev.PatchMade)
    assert (event.payload.sha256, sha in event.payload.path) == (sha, False)


def test_events_without_a_secret_are_written_as_they_are(tmp_path: Path) -> None:
    payloads = [run_started(), tool_started(), ev.RunFinished(stop_reason="finished", exit_code=0)]
    texts = []
    for name, redactor in (("a", None), ("b", Redactor([("db", VALUE)]))):
        with RecordLog.open(tmp_path / name, clock_ns=lambda: 0, redactor=redactor) as log:
            for payload in payloads:
                log.append(payload)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
