"""The table of methods, and that a reply is what the wire contract says."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from corral_protocol import message
from corral_protocol.error import ErrorCode
from corral_toolbox import files
from corral_toolbox.files import code, dispatch


def test_every_file_method_of_the_contract_is_served() -> None:
    served = {*files._PLAIN, *files._FROM_HOST, *files._TO_HOST}
    assert served == {str(method) for method in message.Method if method.startswith(("file.", "tree."))}


def test_codes_without_enum_are_those_of_the_contract() -> None:
    assert [getattr(code.ErrorCode, item.name) for item in ErrorCode] == [item.value for item in ErrorCode]


def test_replies_have_exactly_the_fields_of_the_contract(box: Any) -> None:
    box.put("f", b"x\n")
    box.put("b", b"\0")
    box.put("e", b"")
    replies = [
        (message.FileContent, box.read("f")),
        (message.FileContent, box.read("b", offset=0)),
        (message.FileContent, box.read("e")),
        (message.FileChanged, box.edit("f", "x", "y")),
        (message.FileChanged, box.write("w", b"1")),
        (message.PatchResult, box.patch("*** Begin Patch\n*** Add File: p\n+x\n*** End Patch\n")),
        (message.FileChanged, box.call("file.move", source="w", target="v")),
        (message.FileChanged, box.call("file.delete", path="v")),
        (message.Listing, box.call("file.list")),
        (message.FetchReply, dispatch("file.fetch", {"path": "f", "stream": 1}, box.env, writer=io.BytesIO())),
        (message.FileChanged, dispatch("file.store", {"path": "s", "size": 0}, box.env, reader=io.BytesIO())),
        (message.TreeScanReply, dispatch("tree.scan", {}, box.env, writer=io.BytesIO())),
    ]
    for kind, reply in replies:
        assert set(reply) == {field.name for field in fields(kind)}, kind
    patched = next(reply for kind, reply in replies if kind is message.PatchResult)
    assert set(patched["files"][0]) == {field.name for field in fields(message.FileChanged)}


def test_it_runs_isolated_and_loads_little() -> None:
    source = Path(files.__file__).parents[2]
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import corral_toolbox.files; "
        "print(*sorted({'dataclasses', 'inspect', 'tarfile', 'difflib', 'subprocess', 'collections', 'enum', "
        "'functools', 'importlib', 'json', 're', 'typing'} & set(sys.modules)))"
    )
    command = [sys.executable, "-I", "-S", "-c", script, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_a_stream_nobody_reads_is_not_blamed_on_the_file(box: Any) -> None:
    box.put("f", b"x" * 1000)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb", buffering=0) as pipe, pytest.raises(BrokenPipeError):
        dispatch("file.fetch", {"path": "f", "stream": 1}, box.env, writer=pipe)
