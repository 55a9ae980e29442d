"""Mistakes and mishaps around an agent's run, through the real command: a line that says it, a hint, the exit code."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.model_server import Json, ModelServer, error

ROOT = Path(__file__).parents[2]
REPO = ROOT / "examples/demo/repo"
SCRIPT = f"scripted:{ROOT / 'examples/demo/script.json'}"
NO_MODEL = "  hint: set CORRAL_MODEL or --model, and OPENAI_API_KEY or OPENAI_BASE_URL; "
NO_MODEL += "`corral demo` and `corral exec` need no model"


@dataclass(frozen=True)
class Ran:
    code: int
    err: list[str]
    out: str = ""

    @property
    def told(self) -> tuple[int, list[str]]:
        """Exit code, and the error with its hint: the first two lines."""
        return self.code, self.err[:2]


def corral(*arguments: str, env: dict[str, str] | None = None, path: Path | None = None) -> Ran:
    """The command as a person starts it. `path` is a copy of the project to run instead of this one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "CORRAL_"))}
    if path is not None:
        clean["PYTHONPATH"] = f"{path / 'orchestrator'}:{path / 'toolbox'}"
    done = subprocess.run(
        [sys.executable, "-c", "from corral.cli.start import main; main()", *arguments],
        env=clean | (env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    return Ran(done.returncode, done.stderr.splitlines(), done.stdout)


def run_with(server: ModelServer) -> Ran:
    env = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-wrong-0123456789"}
    ran = corral("run", "-C", str(REPO), "--model", "m", "fix it", env=env)
    assert "sk-wrong" not in ran.out + "".join(ran.err)
    return ran


def make_run(home: Path) -> tuple[str, Path]:
    """A run on record, and its record's file."""
    ran = corral("run", "-C", str(REPO), "--model", SCRIPT, "fix it")
    result = json.loads(ran.out.splitlines()[-1])
    assert (ran.code, result["kind"], result["exit_code"]) == (0, "result", 0)
    return result["run"], Path(result["run_dir"]) / "record.jsonl"


def test_no_model_is_told_with_what_needs_none() -> None:
    assert corral("run", "-C", str(REPO), "fix it") == Ran(2, ["corral: no model is configured", NO_MODEL])


def test_a_model_without_a_key_is_told() -> None:
    ran = corral("run", "-C", str(REPO), "fix it", env={"CORRAL_MODEL": "m"})
    assert ran == Ran(2, ["corral: no key for the model 'm': OPENAI_API_KEY is not set", NO_MODEL])


def test_an_address_that_is_none_is_told_with_its_variable() -> None:
    ran = corral("run", "-C", str(REPO), "--model", "m", "fix it", env={"OPENAI_BASE_URL": "ftp://models"})
    assert (ran.code, len(ran.err)) == (2, 2)
    assert ran.err[0].startswith("corral: OPENAI_BASE_URL: 'ftp://models': ")
    assert ran.err[1] == "  hint: see model.base_url in docs/reference/settings.md"


@pytest.mark.docker
def test_a_wrong_key_is_told_and_never_shown(sandbox_image: str) -> None:
    with ModelServer([error(401, "Incorrect API key provided: sk-wro****6789", code="invalid_api_key")]) as server:
        ran = run_with(server)
    assert ran.code == 3
    assert ran.err[0].startswith("corral: ") and "401" in ran.err[0]
    assert ran.err[1] == "  hint: check OPENAI_API_KEY, and that it belongs to this endpoint"
    assert len(server.received) == 1


@pytest.mark.docker
def test_a_model_without_tool_calls_is_told(sandbox_image: str) -> None:
    with ModelServer([error(400, "m does not support tools", type="api_error")]) as server:
        ran = run_with(server)
    assert ran.code == 3
    assert ran.err[1] == (
        "  hint: choose a model that can call tools, or start its server with tool calling switched on"
    )


@pytest.mark.docker
def test_an_endpoint_that_speaks_something_else_is_told(sandbox_image: str) -> None:
    with ModelServer([Json({"detail": "Not Found"}, status=404)]) as server:
        ran = run_with(server)
    assert (ran.code, ran.err[1].startswith("  hint: check the model's name")) == (3, True)


@pytest.mark.docker
def test_an_unreachable_endpoint_is_told(sandbox_image: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody else gets it, everybody is refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        env = {"OPENAI_BASE_URL": f"http://{address}/v1"}
        ran = corral("run", "-C", str(REPO), "--model", "m", "fix it", env=env)
    assert ran.code == 3
    assert ran.err[0].startswith(f"corral: {address} cannot be reached: ")
    assert ran.err[1] == "  hint: check OPENAI_BASE_URL, and that the server is up"
    assert json.loads(ran.out.splitlines()[-1])["stop_reason"] == "model_unavailable"


@pytest.mark.docker
def test_the_record_and_the_process_agree_on_the_exit_code(sandbox_image: str) -> None:
    script = ("-C", str(REPO), "--model", SCRIPT, "x")
    for arguments, code in (
        (("exec", "--image", "no-such-image:x", "-C", str(REPO), "--", "true"), 125),
        (("run", "--image", "no-such-image:x", *script), 3),
    ):
        assert corral(*arguments).code == code
        run_id = corral("runs").out.split()[0]
        last = json.loads(corral("log", "show", "--json", run_id).out.splitlines()[-1])
        assert (last["kind"], last["payload"]["exit_code"]) == ("run.finished", code)


@pytest.mark.docker
def test_a_changed_line_of_a_record_is_named(sandbox_image: str, home: Path) -> None:
    run_id, record = make_run(home)
    intact = corral("log", "verify", run_id)
    lines = record.read_bytes().split(b"\n")
    lines[4] = lines[4].replace(b'"allow"', b'"deny"', 1)
    assert lines[4] != record.read_bytes().split(b"\n")[4]
    record.write_bytes(b"\n".join(lines))
    verified, shown = corral("log", "verify", run_id), corral("log", "show", run_id)
    assert (intact.code, intact.err) == (0, [])
    assert (verified.code, verified.err) == (1, [])
    assert verified.out.startswith("NOT INTACT: line 5") and verified.out.count("\n") == 1
    assert shown.code == 1
    assert [line.startswith("line 5") for line in shown.err] == [True]


@pytest.mark.docker
def test_a_torn_end_of_a_record_is_told(sandbox_image: str, home: Path) -> None:
    run_id, record = make_run(home)
    whole = record.read_bytes()
    record.write_bytes(whole[:-40])
    last = whole.count(b"\n")
    verified, shown = corral("log", "verify", run_id), corral("log", "show", run_id)
    assert (verified.code, verified.out.startswith(f"NOT INTACT: line {last}")) == (1, True)
    assert (shown.code, len(shown.out.splitlines()), len(shown.err)) == (1, last - 1, 1)


@pytest.mark.docker
def test_bytes_that_are_no_record_are_told_line_by_line(sandbox_image: str, home: Path) -> None:
    run_id, record = make_run(home)
    record.write_bytes(b"\x1b]0;title\x07\n\xff\xfe\n{}\n" + record.read_bytes())
    shown = corral("log", "show", run_id)
    assert shown.code == 1
    assert "\x1b" not in shown.out + "".join(shown.err)
    assert [line[:6] for line in shown.err[:3]] == ["line 1", "line 2", "line 3"]


@pytest.mark.parametrize(
    ("command", "run_id"),
    [
        (("log", "show"), "20200101-000000-abcdef"),
        (("log", "show"), "../../etc"),
        (("log", "show"), ""),
        (("log", "show"), "\x1b[31m"),
        (("log", "verify"), "20200101-000000-abcdef"),
        (("log", "follow"), "20200101-000000-abcdef"),
        (("runs", "rm"), "../../etc"),
        (("apply",), "20200101-000000-abcdef"),
    ],
)
def test_an_unknown_run_is_told(command: tuple[str, ...], run_id: str) -> None:
    ran = corral(*command, run_id)
    assert (ran.code, len(ran.err), ran.out) == (2, 2, "")
    assert ran.err[1].startswith("  hint: ")
    assert "\x1b" not in "".join(ran.err)


@pytest.mark.parametrize(
    "command", [("run", "-C", str(REPO), "--model", SCRIPT, "x"), ("exec", "-C", str(REPO), "--", "true")]
)
def test_a_data_directory_that_cannot_be_written_is_told(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = corral(*command, env={"XDG_DATA_HOME": str(tmp_path / "file")})
    place = str(tmp_path / "file" / "corral" / "runs")
    assert ran == Ran(
        2,
        [
            f"corral: the data directory {place!r} cannot be used: Not a directory",
            "  hint: fix its permissions, or set XDG_DATA_HOME to a writable directory",
        ],
    )


def test_a_typo_in_a_policy_is_told_with_file_line_and_what_is_allowed(tmp_path: Path) -> None:
    for folder in ("orchestrator", "toolbox", "policies", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    policy = tmp_path / "policies/presets/auto.cedar"
    lines = policy.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if "context.side_effect ==" in line)
    lines[number] = lines[number].replace("context.side_effect", "context.side_efect")
    policy.write_text("\n".join(lines) + "\n")
    ran = corral("run", "-C", str(REPO), "--model", SCRIPT, "x", path=tmp_path)
    assert (ran.code, ran.out, len(ran.err)) == (2, "", 2)
    assert f"auto.cedar', line {number + 1}: " in ran.err[0] and "side_efect" in ran.err[0]
    assert "side_effect" in ran.err[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "-C", str(REPO), ""), ["corral: the task is empty",
         '  hint: say what is to be done: corral run "make the tests pass"']),
        (("run", "-C", str(REPO), "--preset", "nope", "x"), ["corral: there is no preset 'nope'",
         "  hint: one of: on-request, auto-edit, auto, never, yolo, plan"]),
        (("run", "--steps", "0", "x"), ["corral: --steps 0 is not above 0", "  hint: leave it out for the default"]),
        (("run", "--model", "scripted:/no/such.json", "x"),
         ["corral: the script '/no/such.json' cannot be read: No such file or directory",
          "  hint: --model scripted:FILE names a JSON file; docs/reference/script.md has its fields"]),
        (("run",), ['corral: Command "run" parameter --task requires an argument.', "  hint: see corral run --help"]),
    ],
)  # fmt: skip
def test_a_wrong_flag_is_told(arguments: tuple[str, ...], told: list[str]) -> None:
    assert corral(*arguments) == Ran(2, told)
