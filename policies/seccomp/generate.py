"""Turns table.txt into default.json, the profile every box gets. Run it after each change of the table.

python policies/seccomp/generate.py [--check]
"""

from __future__ import annotations

import errno
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
_ERRNO = {"EPERM": errno.EPERM, "ENOSYS": errno.ENOSYS}
_CONDITION = re.compile(r"arg([0-5]) (?:& (0x[0-9A-Fa-f]+|[0-9]+) )?== (0x[0-9A-Fa-f]+|[0-9]+)")
_LOW_HALF = 0xFFFFFFFF
Rule = dict[str, object]


def build_profile(table: str) -> dict[str, object]:
    """The engine's profile. Raises ValueError, with the line's number, for anything that is not a clear decision."""
    verdicts: dict[str, str] = {}
    rules: list[Rule] = []
    for number, line in enumerate(table.splitlines(), 1):
        decision, _, reason = (part.strip() for part in line.partition("#"))
        if decision:
            if not reason:
                raise ValueError(f"line {number}: a decision without a reason")
            rules.append(_parse_rule(decision, reason, verdicts, number))
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.EPERM,
        # No sub-architectures: 32-bit and x32 calls are killed, they would come past conditions on arguments.
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
        ],
        "syscalls": rules,
    }


def _parse_rule(decision: str, reason: str, verdicts: dict[str, str], number: int) -> Rule:
    verb, _, rest = decision.partition(" ")
    condition = error = ""
    if verb == "allow":
        rest, _, condition = rest.partition(" if ")
    elif verb == "deny":
        rest, _, error = rest.partition(" with ")
    else:
        raise ValueError(f"line {number}: neither allow nor deny: {verb!r}")
    names = rest.split()
    for name in names:
        # The same call on two lines is fine only where each has a condition: libseccomp joins those by "or".
        kind = f"{verb} if" if condition else f"line {number}"
        if verdicts.setdefault(name, kind) != kind:
            raise ValueError(f"line {number}: {name} is decided twice")
    if len(set(names)) != len(names) or not names:
        raise ValueError(f"line {number}: no name, or one twice")
    rule: Rule = {"names": names, "comment": reason}
    if verb == "allow":
        return rule | {"action": "SCMP_ACT_ALLOW", "args": [_parse_condition(c, number) for c in _split(condition)]}
    return rule | {"action": "SCMP_ACT_ERRNO", "errnoRet": _ERRNO[error or "EPERM"], "args": []}


def _split(condition: str) -> list[str]:
    return condition.split(" and ") if condition else []


def _parse_condition(text: str, number: int) -> dict[str, object]:
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"line {number}: not a condition: {text!r}")
    # The kernel looks at an int's low half only, so must we: always a masked comparison.
    mask = int(match[2], 0) if match[2] else _LOW_HALF
    return {"index": int(match[1]), "value": mask, "valueTwo": int(match[3], 0), "op": "SCMP_CMP_MASKED_EQ"}


def render() -> str:
    """The text of default.json as the table has it now."""
    profile = build_profile((HERE / "table.txt").read_text(encoding="utf-8"))
    return json.dumps(profile, indent=1) + "\n"


def main() -> int:
    target = HERE / "default.json"
    text = render()
    if "--check" in sys.argv:
        return 0 if target.is_file() and target.read_text(encoding="utf-8") == text else 1
    target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
