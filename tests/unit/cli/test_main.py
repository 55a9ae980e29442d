"""Errors become exit codes in one place; help is there at once."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from corral.cli import main as cli
from corral.errors import (
    BoxLost,
    ConfigError,
    EngineUnavailable,
    ImageError,
    ModelError,
    PatchConflict,
    RecordError,
    WorkspaceError,
)


def corral(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from corral.cli.start import main; main()", *arguments]
    return subprocess.run(program, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """What a sub-command that ends like this makes corral exit with and say."""

    def run(error: BaseException, *arguments: str) -> tuple[int, str]:
        def app(*args: object, **options: object) -> object:
            raise error

        monkeypatch.setattr(cli, "app", app)
        code = cli._dispatch(list(arguments or ("run",)))
        return code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("error", "code", "exec_code"),
    [
        (ConfigError("bad flag"), 2, 2),
        (WorkspaceError("no such directory"), 2, 2),
        (PatchConflict("it changed"), 2, 125),
        (EngineUnavailable("no engine"), 3, 125),
        (ImageError("no image"), 3, 125),
        (BoxLost("gone"), 3, 125),
        (RecordError("disk full"), 3, 125),
        (ModelError("no"), 3, 125),
        (KeyboardInterrupt(), 130, 130),
        (ZeroDivisionError("a bug"), 3, 125),
    ],
)
def test_every_error_has_its_exit_code(
    raised: Callable[..., tuple[int, str]], error: BaseException, code: int, exec_code: int
) -> None:
    assert raised(error, "run", "task")[0] == code
    assert raised(error, "exec", "--", "true")[0] == exec_code


def test_an_error_is_a_line_and_a_hint(raised: Callable[..., tuple[int, str]]) -> None:
    assert raised(ConfigError("no\x1b[2J file 'x'", hint="make\none"))[1] == (
        "corral: no\\x1b[2J file 'x'\n  hint: make\\none\n"
    )
    assert raised(BoxLost("gone"))[1] == "corral: gone\n"
    text = raised(ZeroDivisionError("a bug"))[1]
    assert text.startswith("corral: a fault in corral: ZeroDivisionError: a bug\n  hint: ") and "Traceback" not in text


def test_a_reader_that_went_away_is_no_fault(raised: Callable[..., tuple[int, str]]) -> None:
    with pytest.raises(BrokenPipeError):
        raised(BrokenPipeError())


def test_a_closed_pipe_ends_quietly() -> None:
    program = f"{sys.executable} -c 'from corral.cli.start import main; main()' run --help | true"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {program}"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("arguments", "words", "hint"),
    [
        (["exce"], "exce", "see corral --help"),
        (["exec"], "no command given", "corral exec [options] -- CMD ..."),
        (["exec", "--no-such-flag"], "no-such-flag", "put -- before the command"),
        (["exec", "--timeout", "soon", "--", "true"], "timeout", "see corral exec --help"),
        (["run"], "TASK", "see corral run --help"),
        (["log", "show", "no-such-run"], "there is no run 'no-such-run'", "corral runs lists them"),
        (["log", "show", "../../etc"], "there is no run", "corral runs lists them"),
        (["runs", "rm"], "no run named", "corral runs lists them"),
        (["run", "--steps", "0", "x"], "--steps 0 is not above 0", ""),
    ],
)
def test_a_mistake_is_told_with_what_to_do(arguments: list[str], words: str, hint: str) -> None:
    done = corral(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words.lower() in done.stderr.lower() and hint in done.stderr and "Traceback" not in done.stderr


def test_help_is_there_at_once() -> None:
    began = time.perf_counter()
    done = corral("--help")
    print(f"corral --help: {time.perf_counter() - began:.2f} s, aim 0.3 s")
    assert done.returncode == 0
    for name in cli._COMMANDS:
        assert name in done.stdout


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; sys.argv = ['corral', '--help']\n"
        "from corral.cli.start import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('pydantic', 'docker', 'openai', 'cedarpy', 'corral.app') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_version_is_told() -> None:
    done = corral("--version")
    assert (done.returncode, done.stdout.strip().count(".")) == (0, 2)
