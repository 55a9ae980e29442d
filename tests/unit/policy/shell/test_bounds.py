"""Any 64 KB are read in bounded time and memory: a child process with hard limits reads what was made to be slow."""

from __future__ import annotations

import random
import resource
import subprocess
import sys

import pytest

from corral.policy.shell import MAX_BYTES, read_command_line
from corral.policy.shell.finding import MAX_DEPTH, MAX_PENDING

# The whole list takes some four seconds of CPU; one of them unbounded takes a minute or more.
CPU_S = 60
MEMORY = 700 << 20

REPEATED = (
    *(
        "(",
        "$(",
        "`",
        "((",
        "[[ ",
        "${a[",
        '"$(',
        "if ",
        "case a in ",
        "f(){ ",
        "<<",
        "<<a ",
        "cat <<a\n",
        "a|",
        "a|b ",
        "a&&",
    ),
    *(
        "a;",
        "a ",
        ">a ",
        "{a,b}",
        "{a,",
        "a\\\n",
        "\\",
        "'",
        '"',
        "$'\\x41",
        "a=(",
        "$((",
        "eval ",
        "sudo ",
        "xargs ",
        "env ",
    ),
    *(
        "bash -c ",
        "timeout 1 ",
        "`echo \\`",
        "eval 'a[$(x)]';",
        "printf -v 'a[$(a)]';",
        "-exec rm {} + ",
        "{}",
        "\x00",
        "\u202e",
    ),
    *(
        "a=(${x:-`$(<<E ",
        "eval 'eval eval eval';",
        "bash -c 'bash -c \"bash -c ls\"';",
        "]]",
        "x[",
        "=~ ",
        "; do ",
        "#",
    ),
)
WRAPPED = (
    *(("sed 's/[/]/x/;", "s/[/]/x/;", "'"), ("sed '", "[", "'"), ("sed 'y", "/", "'"), ("awk '", "|", "'")),
    *(
        ("awk '", '"\\', "'"),
        ("awk '", "/", "'"),
        ("awk '", ",/a", "'"),
        ("awk 'print ", "(", "'"),
        ("find . ", "-exec a {} ; ", ""),
    ),
    *(
        ("git ", "-c alias.a=a ", "a"),
        ("tar ", "--to-command=ls ", ""),
        ("parallel ", "{}", ""),
        ("eval '", "ls;", "'"),
    ),
    *(
        ("cat <<E\n", "`a` $(b) ${c} ", "\nE\n"),
        ("cat <<E\n", "\\\n", "E\n"),
        ("env -S '", "env ", "'"),
        ("ls ", "$(ls ", ""),
    ),
)
PIECES = (
    *(
        "(",
        ")",
        "{ ",
        "}",
        "[[ ",
        "]] ",
        "$(",
        "${",
        "$((",
        "))",
        "`",
        "'",
        '"',
        "<<E ",
        "\nE\n",
        "|",
        "&&",
        ";",
        "\n",
        "a ",
    ),
    *(
        "b=",
        "if ",
        "then ",
        "fi ",
        "case ",
        "in ",
        "esac ",
        "for ",
        "do ",
        "done ",
        "sudo ",
        "bash -c ",
        "eval ",
        "\\",
        "#",
    ),
    *("x[", "]", "f() ", "=~ ", "*", "<(", ">f ", "git -c ", "sed ", "awk ", "find . -exec ", "xargs "),
)


def make_texts(seed: int) -> list[str]:
    """Texts of the full size."""
    chance = random.Random(seed)
    texts = [piece * (MAX_BYTES // len(piece.encode())) for piece in REPEATED]
    texts += [before + piece * ((MAX_BYTES - 60) // len(piece)) + after for before, piece, after in WRAPPED]
    texts += [
        "(" * 30_000 + "ls" + ")" * 30_000,
        "$(" * 20_000 + "ls" + ")" * 20_000,
        "a\n" * 199 + "x <<a\n" * 199 + "x\n" * 30_000,
    ]
    texts += ["".join(chance.choices(PIECES, k=20_000))[:MAX_BYTES] for _ in range(6)]
    texts += ["".join(chance.choices("(){}[]$`'\"<>|&;\nab #=\\!*?", k=MAX_BYTES)) for _ in range(3)]
    return texts


def read_all(seed: int) -> None:
    for text in make_texts(seed):
        line = read_command_line(text)
        assert len(line.programs) <= MAX_PENDING, text[:40]
        assert all(len(program.within) <= MAX_DEPTH for program in line.programs), text[:40]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def test_what_was_made_to_be_slow_or_large_is_read_within_limits() -> None:
    seed = random.randrange(1 << 30)
    code = (
        f"import resource, sys; sys.path[:0] = {sys.path!r}; "
        f"resource.setrlimit(resource.RLIMIT_CPU, ({CPU_S}, {CPU_S})); "
        f"resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY})); "
        f"import importlib.util as u; s = u.spec_from_file_location('bounds', {__file__!r}); "
        f"m = u.module_from_spec(s); s.loader.exec_module(m); m.read_all({seed})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-2000:]}"


@pytest.mark.parametrize("text", ["a" * (MAX_BYTES + 1), "\u00e9" * (MAX_BYTES // 2 + 1)])
def test_longer_than_the_limit_is_not_read(text: str) -> None:
    line = read_command_line(text)
    assert (line.programs, line.dynamic, line.has_error) == ((), True, True)


def test_the_limit_itself_is_read() -> None:
    text = "ls -la;" * (MAX_BYTES // 7)
    line = read_command_line(text)
    assert (len(line.programs), line.dynamic, line.has_error) == (MAX_BYTES // 7, False, False)


def test_braces_are_not_expanded() -> None:
    (program,) = read_command_line("echo " + "{a,b}" * 40).programs
    assert program.arguments == ("{a,b}" * 40,)


def test_code_inside_code_is_followed_and_then_told() -> None:
    def nest(depth: int) -> str:
        return "eval " * depth + "rm x"

    assert [program.name for program in read_command_line(nest(MAX_DEPTH)).programs][-1] == "rm"
    assert read_command_line(nest(MAX_DEPTH + 1)).unknown == ("commands inside commands, too many or too deep",)


def test_a_line_that_stops_the_parser_is_not_understood() -> None:
    line = read_command_line("a|" * 20_000)
    assert line.has_error
