"""docs/security.md, from what was tried."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.machine import Machine
from benchmarks.security.attacks.attack import BREACH, HELD
from benchmarks.security.suite import RESIDUAL, Row

_HEAD = """\
# Security, as tried

Written by `make bench-security` from its own results: never edited. Each attack is a small program that runs in a
container as an ordinary command of an ordinary run and says whether it succeeded. What is promised, and what is not a
boundary, stands in [SECURITY.md](../SECURITY.md).
"""
_METHOD = """\
## Method

- **Ours**: a box with the default configuration, as the untrusted user. Where filling something up would take long,
  the same with lower limits (1 GiB of memory, 64 MiB of workspace, a fifth of a processor); after each of those the
  toolbox must answer.
- **Plain**: `docker run` with its defaults on the same image: root, the engine's own filter and capabilities, the
  workspace bind-mounted. It shares the network of a neighbour that answers at every address tried, since the question
  is what the container could reach. Its memory and processes have limits above ours, so that the machine survives.
- **Open**: what plain Docker holds is tried again in a container without a filter, with every capability and device
  this machine can give, nothing masked, the host's name, the neighbour's processes. **A check that has never failed is
  no check**: each must succeed in plain or in open. Where even the open one is told that the kernel has no such call,
  the attack is not counted.

- **gVisor**, where the engine has it: plain Docker with the runtime `runsc`, as root, and **ours in gVisor**, our box
  with `runtime = "runsc"`. A call that gets through reaches gVisor's own kernel and not the host's, and no filter is
  applied: a success there is one inside a second kernel. It has no network here, and attacks on limits are not tried: a
  bomb ends the whole of it.

A call of the kernel counts as reached when it answers anything but a refusal; arguments are such that no harm is done.
What would live into the next box looks for itself there: ours is a second box over the same workspace; the controls
are containers that are kept for the next task. What the host judges (files of the original, processes, containers,
mounts) is judged from outside, after the end.
`python -m benchmarks.security NAME...` runs single attacks; `tests/security/test_attacks.py` runs a seeded tenth.
"""


def render_report(machine: Machine, rows: Sequence[Row]) -> str:
    counted = [row for row in rows if not row.is_absent]
    return "\n".join(
        [_HEAD, f"On {machine.describe()}.\n", _render_summary(counted), _render_residual(counted), _METHOD,
         _render_absent(rows), _render_attacks(counted)]
    )  # fmt: skip


def _render_summary(rows: Sequence[Row]) -> str:
    has_gvisor = any(row.gvisor for row in rows)
    more = [" in gVisor | in ours in gVisor |", "--:|--:|"] if has_gvisor else ["", ""]
    lines = [
        f"| family | attacks | succeed in ours | in plain Docker | seen to succeed |{more[0]}",
        f"|---|--:|--:|--:|--:|{more[1]}",
    ]
    families = list(dict.fromkeys(row.attack.family for row in rows))
    for family in [*families, "all"]:
        part = [row for row in rows if family in ("all", row.attack.family)]
        name = f"**{family}**" if family == "all" else family
        residual = sum(row.attack.id in RESIDUAL and row.ours.verdict == BREACH for row in part)
        ours = str(sum(row.is_breach for row in part)) + (f" + {residual} residual" if residual else "")
        plain = sum(row.plain.verdict == BREACH for row in part)
        line = f"| {name} | {len(part)} | {ours} | {plain} | {sum(row.is_proven for row in part)} |"
        if has_gvisor:
            for outcomes in ([row.gvisor for row in part], [row.ours_gvisor for row in part]):
                line += f" {sum(one is not None and one.verdict == BREACH for one in outcomes)} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _render_residual(rows: Sequence[Row]) -> str:
    lines = ["## What succeeds, and is accepted\n"]
    lines += [
        f"- `{row.attack.id}`: {row.attack.what}: {RESIDUAL[row.attack.id]}."
        for row in rows
        if row.attack.id in RESIDUAL
    ]
    breaches = [row for row in rows if row.is_breach]
    if breaches:
        lines += ["", "## What succeeds, and must not\n"]
        lines += [f"- `{row.attack.id}`: {row.attack.what}: {_clean(row.ours.reason)}." for row in breaches]
    untried = [row for row in rows if row.ours.verdict not in (HELD, BREACH)]
    if untried:
        lines += ["", "## What could not be tried\n"]
        lines += [f"- `{row.attack.id}`: {row.attack.what}: {_clean(row.ours.reason)}." for row in untried]
    return "\n".join(lines) + "\n"


def _render_absent(rows: Sequence[Row]) -> str:
    names = [f"`{row.attack.id}`" for row in rows if row.is_absent]
    if not names:
        return ""
    text = ", ".join(names)
    return f"Not counted, because this machine's kernel has no such call (in ours they are refused, too): {text}.\n"


def _render_attacks(rows: Sequence[Row]) -> str:
    has_gvisor = any(row.gvisor for row in rows)
    columns = ["attack", "what", "ours", "plain", "open", *(["gVisor", "ours in gVisor"] if has_gvisor else [])]
    head = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    lines = ["## Every attack\n"]
    for family in dict.fromkeys(row.attack.family for row in rows):
        lines += [f"### {family[0].upper()}{family[1:]}\n", *head]
        for row in rows:
            if row.attack.family == family:
                outcomes = [row.ours, row.plain, row.open, *([row.gvisor, row.ours_gvisor] if has_gvisor else [])]
                ends = " | ".join(outcome.verdict if outcome else "" for outcome in outcomes)
                lines.append(f"| `{row.attack.id}` | {_clean(row.attack.what)} | {ends} |")
        lines.append("")
    return "\n".join(lines)


def _clean(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
