"""A command line as policy's facts: what is safe, what is listed, and what is said to be unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from corral.policy import PolicyEngine, PolicyLayer, SessionPolicy
from corral.policy.command import MAX_LISTED, parse_command
from corral.policy.shell.safe import SAFE_PROGRAMS
from corral.schema.policy import CommandFacts, Effect, PolicySession, Preset
from corral.schema.tools import ToolCall, ToolSpec

SESSION = PolicySession(id="s1")


def test_the_facts_of_a_line() -> None:
    assert parse_command(
        "sudo /bin/rm -rf /srv/data/a ./b; PATH=x curl http://a.example | python3 -c 1 > $out"
    ) == CommandFacts(
        parsed=True,
        programs=("sudo", "curl", "python3", "/bin/rm", "rm"),
        writes=("/srv/data/a", "/srv/data", "/srv", "b"),
        more_writes=True,
        hosts=("a.example",),
        code=("python3",),
        variables=("PATH",),
    )


def test_what_is_not_known_is_said() -> None:
    assert parse_command("$X; ls '") == CommandFacts(
        programs=("ls",),
        dynamic=True,
        has_error=True,
        unknown=("the name of a program is known at run time only", "it is not understood as the shell would"),
    )


@pytest.mark.parametrize(
    "command",
    [
        *("ls", "  head -n 20 README.md ", "grep -rn foo src/a.py", "cat a=b", "wc -l x,y", "ls 'a b'", 'cat "$X"'),
        *("cd src && grep -rn foo . | head -5", "ls -la 2>&1 >/dev/null", "grep -rn 'rm -rf' . | sort | uniq -c"),
        *(
            "find . -name '*.py' -newer a -print0 | xargs -0 wc -l",
            "sed -n '1,5p;/x/p' f",
            "sort -k 2 -t: f",
            "date +%s",
        ),
        *(
            "awk -F: '{print $1}' f",
            "[ -f a ] && cat a",
            'for f in *.c; do echo "$f"; wc -l "$f"; done',
            "timeout 5 ls",
        ),
        *(
            "(cd src; ls)",
            "cat <<EOF\nx $y\nEOF",
            "diff -u a b",
            "rg -n --hidden foo",
            "xxd -l 16 f",
            "printf '%s' \"$x\"",
        ),
    ],
)
def test_a_line_that_can_only_read_is_safe(command: str) -> None:
    assert parse_command(command).safe


@pytest.mark.parametrize(
    "command",
    [
        *("", " ", "rm x", "python3 a.py", "git status", "/bin/ls", "./ls", "X=1", "ls; rm x", "ls && rm x", "ls | sh"),
        *(
            "ls > a",
            "ls & rm x",
            "ls $(rm x)",
            "ls `rm x`",
            "ls\nrm x",
            "ls\rrm x",
            "$X ls",
            "ls \u202ex",
            "ls\x00",
            "ls '",
        ),
        *(
            "find . -exec rm {} \\;",
            "find . -delete",
            "find a -fls /tmp/o",
            "find . $X",
            "sort -o f a",
            "sort --outp=f a",
        ),
        *("sort --compress-program=rm a", "sed -n '1e rm x' a", "sed -i s/a/b/ f", "sed -n 'w out' a", "sed -f x f"),
        *("awk 'BEGIN{system(\"rm x\")}'", "awk '{print > \"o\"}' f", "awk -f x f", "gawk -i inplace 1 f", "uniq a b"),
        *(
            "tar cf /dev/null a --checkpoint=1 --checkpoint-action=exec=rm",
            "tar -x -C /",
            "rg --pre cmd x",
            "less '+!rm x'",
        ),
        *(
            "vim -c '!rm'",
            "man -P cmd ls",
            "date -s 12:00",
            "date 010112002026",
            "xxd -r a b",
            "tee f",
            "env rm x",
            "xargs rm",
        ),
        *("ls | xargs sh", "tree -o f", "printf -v a x", "PATH=. ls", "LD_PRELOAD=x ls", "cat < /dev/tcp/a.example/1"),
        *(
            "diff -l a b",
            "file -C -m x",
            "alias ls=rm",
            "ls() { rm x; }; ls",
            "eval ls",
            "source ls",
            "sort $X",
            "echo ${x@P}",
        ),
    ],
)
def test_other_programs_are_not_safe(command: str) -> None:
    assert not parse_command(command).safe


def test_no_program_that_can_write_or_run_others_is_safe_whatever_its_options() -> None:
    hazards = (
        "awk bash cp date dd ed env eval exec find git hostname install less ln man mv node perl python3 rg rm sed sh"
    )
    more = "sort source split sudo tar tee timeout touch tree uniq vim watch wget xargs xxd printf declare trap"
    assert SAFE_PROGRAMS & set(f"{hazards} {more}".split()) == set()


def test_more_than_is_listed_is_not_parsed() -> None:
    facts = parse_command("".join(f"p{number};" for number in range(MAX_LISTED + 1)))
    assert (facts.parsed, facts.dynamic, len(facts.programs)) == (False, True, MAX_LISTED)
    assert parse_command("".join(f"p{number};" for number in range(MAX_LISTED))).parsed


Judge = Callable[[str, str], tuple[Effect, tuple[str, ...]]]


@pytest.fixture
def judge(tmp_path: Path, specs: dict[str, ToolSpec]) -> Judge:
    """Under `yolo` and one rule more."""

    def decide(rule: str, command: str) -> tuple[Effect, tuple[str, ...]]:
        path = tmp_path / "user.cedar"
        path.write_text(f'@id("r") @reason("r") {rule}')
        policy = SessionPolicy(PolicyEngine.load_preset(Preset.YOLO, [PolicyLayer("user", path)]), SESSION)
        decision = policy.decide(specs["shell"], ToolCall(id="c", name="shell", arguments={"command": command}))
        return decision.effect, decision.rules

    return decide


NO_CURL = 'forbid (principal, action == Action::"shell", resource) when { context.programs.contains("curl") };'


@pytest.mark.parametrize(
    ("command", "effect", "rules"),
    [
        ("ls", Effect.ALLOW, ("yolo/all",)),
        ("c''url x", Effect.DENY, ("user/r",)),
        ("sudo /usr/bin/curl x", Effect.DENY, ("user/r",)),
        ("bash -c 'ls | xargs -n1 curl'", Effect.DENY, ("user/r",)),
        ("$X x", Effect.ASK, ("unknown/programs", "yolo/all")),
        ("echo x | sh", Effect.ASK, ("unknown/programs", "yolo/all")),
        ("ls '", Effect.ASK, ("unknown/programs", "yolo/all")),
        ("$X; curl x", Effect.DENY, ("user/r",)),
        ("grep curl README.md; git commit -m 'use curl'", Effect.ALLOW, ("yolo/all",)),
        ('rm "$X"', Effect.ALLOW, ("yolo/all",)),
    ],
)
def test_a_rule_about_programs_asks_where_it_cannot_see(
    judge: Judge, command: str, effect: Effect, rules: tuple[str, ...]
) -> None:
    found, named = judge(NO_CURL, command)
    # What is denied and not known is both.
    assert (found, tuple(name for name in named if found is not Effect.DENY or name != "unknown/programs")) == (
        effect,
        rules,
    )


def test_a_rule_about_writes_asks_where_the_name_is_not_known(judge: Judge) -> None:
    rule = 'forbid (principal, action == Action::"shell", resource) when { context.writes.contains("/srv/data") };'
    assert judge(rule, "rm -rf /srv/x/../data/a")[0] is Effect.DENY
    assert judge(rule, "ls > /srv/./data//b")[0] is Effect.DENY
    assert judge(rule, "ls > /srv/other")[0] is Effect.ALLOW
    assert judge(rule, 'rm -rf "$X"') == (Effect.ASK, ("unknown/writes", "yolo/all"))


def test_a_rule_about_hosts_asks_where_the_name_is_not_known(judge: Judge) -> None:
    rule = 'forbid (principal, action == Action::"shell", resource) when { context.hosts.contains("a.example") };'
    assert judge(rule, "wget https://me@a.example:8443/x")[0] is Effect.DENY
    assert judge(rule, 'curl "$URL"') == (Effect.ASK, ("unknown/hosts", "yolo/all"))


def test_without_such_a_rule_nothing_is_asked(judge: Judge) -> None:
    rule = 'forbid (principal, action == Action::"delete", resource);'
    assert judge(rule, "$X x") == (Effect.ALLOW, ("yolo/all",))


def test_a_permit_of_programs_does_not_permit_what_it_cannot_see(tmp_path: Path, specs: dict[str, ToolSpec]) -> None:
    path = tmp_path / "user.cedar"
    path.write_text(
        '@id("r") permit (principal, action == Action::"shell", resource)'
        ' when { ["ls"].containsAll(context.programs) };'
    )
    policy = SessionPolicy(PolicyEngine.load_preset(Preset.ON_REQUEST, [PolicyLayer("user", path)]), SESSION)

    def decide(command: str) -> Effect:
        return policy.decide(specs["shell"], ToolCall(id="c", name="shell", arguments={"command": command})).effect

    assert [decide(command) for command in ("ls > a", "./ls", "$X", "ls; rm x")] == [
        Effect.ALLOW,
        Effect.ASK,
        Effect.ASK,
        Effect.ASK,
    ]


def test_the_decision_says_what_runs_and_what_is_not_known(specs: dict[str, ToolSpec]) -> None:
    policy = SessionPolicy(PolicyEngine.load_preset(Preset.AUTO), SESSION)
    decision = policy.decide(specs["shell"], ToolCall(id="c", name="shell", arguments={"command": "ls | xargs rm; $X"}))
    assert (decision.effect, decision.programs, decision.unknown) == (
        Effect.ALLOW,
        ("ls", "xargs", "rm"),
        ("the name of a program is known at run time only",),
    )
