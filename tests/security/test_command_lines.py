"""What the reader of command lines says, against what a real shell does: marker programs, and the box's record.

Every line of the corpus runs in a box, with a marker that does nothing in the place of `rm`. Whatever started must have
been said, unless the line was said to be dynamic, not understood, or code in another language.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.contract.boxes import make_spec, output

from corral.policy.shell import CommandLine, read_command_line
from corral.sandbox.base import CALL
from corral.sandbox.docker import DockerSandbox
from corral_protocol.message import EventKind, EventMark, ProcessEvents

pytestmark = pytest.mark.docker

CORPUS = Path(__file__).parents[1] / "unit/policy/shell/commands.yaml"
LINES: list[dict[str, Any]] = [
    entry for group in yaml.safe_load(CORPUS.read_text(encoding="utf-8")) for entry in group["lines"]
]
MARKER = "mark"
# Lines that wait for a keyboard, a clock or a host, or end the call's own shell.
WAITING = re.compile(
    r"\b(watch|select|man|vim|less|nc|ping|ssh|script|su|crontab|socat|strace|make|npm|http\.server)\b|head -c"
)
# Programs of the box that start others by themselves: only what they are asked to start is of interest.
OWN = {
    "bash": {"id"},
    "tar": {"gzip"},
    "git": {
        *("basename", "cat", "git-bisect", "git-filter-branch", "git-remote-https", "git-sh-i18n--envsubst"),
        *("git-submodule", "git-upload-pack", "sed", "sleep", "uname"),
    },
}
SHELLS = {"sh", "bash", "dash"}
# What the corpus has run for sure, as bash 5.2 does it: the marker must be seen, and must have been said.
CERTAIN = (
    *(
        "(mark x)",
        "{ mark x; }",
        "! mark x",
        "time mark x",
        "ls $(mark x)",
        "ls `mark x`",
        "cat <(mark x)",
        "trap 'mark x' EXIT",
    ),
    *("coproc mark x; wait", "f() { mark x; }; f", "if true; then mark x; fi", "for i in a; do mark x; done"),
    *('[ -n "$(mark x)" ]', "m\\ark x", "m''ark x", '"mark" x', "$'mar\\x6b' x", "m\\\nark x", ": $((a[`mark x`]))"),
    *(
        "test -v 'a[$(mark x)]'",
        "[[ -v 'a[$(mark x)]' ]]",
        "declare -n r='a[$(mark x)]'; echo $r",
        "printf -v 'a[$(mark x)]' y",
    ),
    *(
        "PS4='$(mark x)'; set -x; true",
        "bash <<EOF\nmark x\nEOF",
        "cat <<EOF\n$(mark x)\nEOF",
        "cat <<EOF\n`mark x`\nEOF",
    ),
    *("echo '<<EOF'\nmark x", "cat <<< EOF\nmark x", "(( x = 1 << EOF ))\nmark x", "> out mark x", "echo a#b; mark x"),
    *(
        "bash -c 'mark x'",
        "sh -c \"sh -c 'mark x'\"",
        "eval 'm''ark x'",
        "env A=1 mark x",
        "env -S 'mark x'",
        "timeout 5 mark x",
    ),
    *(
        "nice -n 5 mark x",
        "nohup mark x",
        "setsid -w mark x",
        "stdbuf -oL mark x",
        "echo x | xargs mark",
        "echo x | xargs -I{} mark {}",
    ),
    *(
        "find . -maxdepth 0 -exec mark {} \\;",
        "flock /tmp/l mark x",
        "flock /tmp/l -c 'mark x'",
        "command mark x",
        "exec mark x",
    ),
    *("git init -q /tmp/g; git -C /tmp/g -c alias.x='!mark x' x", "git -C /tmp/g -c core.fsmonitor='mark x' status"),
    *("echo a > f; sed -n '1e mark x' f", "awk 'BEGIN{system(\"mark x\")}'", "awk 'BEGIN{\"mark x\" | getline d}'"),
    *(
        "tar cf /dev/null . --checkpoint=1 --checkpoint-action=exec='mark x'",
        "tar cf a.tar f; tar xf a.tar --to-command='mark x'",
    ),
    *(
        "sort --compress-program=mark -S 1k /etc/services /etc/services > /dev/null || mark x",
        "split --filter='mark x' /etc/hostname",
    ),
    *(
        "echo ${x:-$(mark x)}",
        'echo "${x:=`mark x`}"',
        "x=1; echo ${x#`mark x`}",
        "a[$(mark x)]=1",
        "a=([0]=$(mark x))",
    ),
    *(
        "echo `echo \\`mark x\\``",
        "echo \"${x:-'$(mark x)'}\"",
        "ls > >(mark x); sleep 0.1",
        "x='a[$(mark x)]'; echo $((x))",
    ),
)


def allowed(line: CommandLine) -> set[str]:
    said = {program.name.rsplit("/", 1)[-1] for program in line.programs}
    return said | SHELLS | {name for program in said for name in OWN.get(program, ())}


class Observed:
    """A box in which every call tells which programs it has started."""

    def __init__(self) -> None:
        self.told: dict[str, set[str]] = {}
        self.count = 0

    def observe(self, call: str, batch: ProcessEvents) -> None:
        for event in batch.events:
            if event.kind is EventKind.EXEC and event.mark is not EventMark.NOT_FOUND and event.argv:
                self.told.setdefault(call, set()).add(event.argv[0].rsplit("/", 1)[-1])

    async def run(self, box: DockerSandbox, line: str) -> set[str]:
        self.count += 1
        call = f"line{self.count}"
        CALL.set(call)
        await box.shell(line, timeout_s=20, env={"PATH": "/tmp/bin:/usr/local/bin:/usr/bin:/bin"})
        # The batch of a call is told with its end; a later call's batch comes behind it.
        CALL.set(f"after{self.count}")
        await box.shell("/bin/true", timeout_s=20)
        async with asyncio.timeout(20):
            while f"after{self.count}" not in self.told or call not in self.told:
                await asyncio.sleep(0.005)
        return self.told[call]


@pytest.fixture
def observed() -> Observed:
    return Observed()


async def prepare(box: DockerSandbox) -> None:
    result = await box.shell(
        "mkdir -p /tmp/bin src && printf '#!/bin/sh\\n:\\n' > /tmp/bin/mark && chmod 755 /tmp/bin/mark"
        " && touch f a b x in list",
        timeout_s=20,
    )
    assert result.exit_code == 0, output(result.stderr)


def make_harmless(text: str) -> str:
    return re.sub(r"\brm\b", MARKER, text)


async def test_whatever_starts_was_said(tmp_path: Path, image: str, observed: Observed) -> None:
    (tmp_path / "workspace").mkdir()
    spec = make_spec(tmp_path / "workspace", tmp_path, image, observe=observed.observe)
    wrong, marked = [], 0
    async with DockerSandbox(spec) as box:
        await prepare(box)
        for entry in LINES:
            text = make_harmless(entry["line"])
            if WAITING.search(text) or not text.strip():
                continue
            line = read_command_line(text)
            started = await observed.run(box, text)
            marked += MARKER in started
            if not (line.dynamic or line.has_error or line.code) and not started <= allowed(line):
                wrong.append((text, sorted(started - allowed(line))))
    assert "\n".join(map(str, wrong)) == ""
    assert marked > 80


async def test_what_runs_for_certain_is_said(tmp_path: Path, image: str, observed: Observed) -> None:
    (tmp_path / "workspace").mkdir()
    spec = make_spec(tmp_path / "workspace", tmp_path, image, observe=observed.observe)
    async with DockerSandbox(spec) as box:
        await prepare(box)
        started = {text: MARKER in await observed.run(box, text) for text in CERTAIN}
    said = {text: MARKER in {program.name for program in read_command_line(text).programs} for text in CERTAIN}
    assert [text for text, ran in started.items() if not ran] == []
    assert [text for text, was in said.items() if not was] == []
