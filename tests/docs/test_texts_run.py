"""What our texts tell people to type works, and gives what they say it gives."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest
from tests.docs.runnable import ROOT, TEXTS, Block, find_blocks, missing_line

from corral.cli.main import app

RUNNABLE = [file for file in TEXTS if any(block.is_runnable for block in find_blocks(file))]


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_the_texts_have_something_to_run() -> None:
    assert {"README.md", "docs/quickstart.md", "docs/reference/python.md"} <= {name(file) for file in RUNNABLE}


@pytest.mark.docker
@pytest.mark.parametrize("file", RUNNABLE, ids=name)
def test_the_blocks_of_a_text_run_in_order(file: Path, tmp_path: Path, home: Path, sandbox_image: str) -> None:
    """In one directory, a copy of the demo's repository; each block in a shell of its own."""
    repo = tmp_path / "repo"
    shutil.copytree(ROOT / "examples/demo/repo", repo, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(repo, repo / "path/to/repo")
    environment = dict(os.environ) | {
        "PATH": f"{bin_folder(tmp_path)}:{os.environ['PATH']}",
        "CORRAL_EXAMPLES": str(ROOT / "examples"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for key in ("CORRAL_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        environment.pop(key, None)
    output = ""
    for block in find_blocks(file):
        if block.is_runnable:
            output = run(block, repo, environment, name(file))
        elif block.is_expectation:
            missing = missing_line(block.text, output)
            assert missing is None, f"{name(file)}:{block.line}: {missing!r} is not in\n{output}"


def bin_folder(tmp_path: Path) -> str:
    folder = tmp_path / "bin"
    folder.mkdir()
    for command, program in (
        ("corral", f'exec {shlex.quote(sys.executable)} -c "from corral.cli.start import main; main()" "$@"'),
        ("python3", f'exec {shlex.quote(sys.executable)} "$@"'),
    ):
        (folder / command).write_text(f"#!/bin/sh\n{program}\n")
        (folder / command).chmod(0o755)
    return str(folder)


def run(block: Block, repo: Path, environment: dict[str, str], where: str) -> str:
    if block.language == "python":
        argv = [sys.executable, "-c", block.text]
    else:
        argv = ["bash", "-e", "-c", block.text]
    done = subprocess.run(
        argv,
        cwd=repo,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{where}:{block.line}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.mark.parametrize("file", TEXTS, ids=name)
def test_every_command_in_a_text_is_one_that_corral_takes(file: Path) -> None:
    for block in find_blocks(file):
        if block.language != "sh":
            continue
        for command in find_commands(block.text):
            app.parse_args(command, exit_on_error=False, print_error=False)


def find_commands(text: str) -> list[list[str]]:
    """The arguments of every plain `corral ...` command."""
    found = []
    lines = iter(text.replace("\\\n", " ").splitlines())
    for line in lines:
        if line.startswith(("corral ", ".venv/bin/corral ")):
            while (words := split(line)) is None:
                line = f"{line}\n{next(lines)}"
            found.append(words[1:])
    return found


def split(line: str) -> list[str] | None:
    """The words up to a pipe or the like; None where a quoted text goes on in the next line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(takewhile(lambda word: not set(word) <= set("|&;<>()"), lexer))
    except ValueError:
        return None
