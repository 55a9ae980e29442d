"""All that corral itself says to a person or a program goes through one door, and is masked there."""

from __future__ import annotations

import base64
import json
from contextvars import Context

import pytest

from corral.cli.exec import _describe_stream
from corral.cli.output import fail, mask_output, note, print_json, print_line
from corral.redact import Redactor
from corral_protocol.message import Capture

VALUE = "Zk83-fLs03kf.slw93jd"
KEY = "ghp_" + "a1B2" * 9
MASKED = "[secret:db#1~583201]"


def redactor() -> Redactor:
    return Redactor([("db", VALUE)], mark=583201)


def test_everything_that_is_said_is_masked(capsys: pytest.CaptureFixture[str]) -> None:
    def say() -> None:
        mask_output(redactor())
        note(f"see {VALUE}")
        fail(f"no {VALUE}", hint=f"try {KEY}", code=2)
        print_line(f"at {VALUE}")
        print_json({"a": [VALUE], VALUE: 1})

    Context().run(say)
    out, err = capsys.readouterr()
    assert (VALUE in out + err, KEY in out + err, (out + err).count(MASKED)) == (False, False, 5)
    assert json.loads(out.splitlines()[1]) == {"a": [MASKED], MASKED: 1}


def test_an_error_is_masked_although_no_run_has_said_what_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    Context().run(lambda: fail(f"cannot use {KEY}", code=2))
    assert KEY not in capsys.readouterr().err


@pytest.mark.parametrize("cut", range(0, len(VALUE) + 1, 3))
def test_a_secret_over_the_border_of_head_and_tail_is_masked(cut: int) -> None:
    whole = f"is {VALUE} so".encode()
    head, tail = whole[: 3 + cut], whole[3 + cut :]
    capture = Capture(base64.b64encode(head).decode(), base64.b64encode(tail).decode(), len(whole), len(whole))
    shown = _describe_stream(capture, redactor())
    assert f"{shown['head']}{shown['tail']}" == f"is {MASKED} so"
