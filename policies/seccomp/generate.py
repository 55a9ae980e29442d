"""Turns table.txt into default.json, the profile every box gets, and debug.json, the same with debuggers allowed.

Run it after each change of the table: python policies/seccomp/generate.py [--check]
"""

from __future__ import annotations

import errno
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
_ERRNO = {"EPERM": errno.EPERM, "ENOSYS": errno.ENOSYS, "EOPNOTSUPP": errno.EOPNOTSUPP}
_CONDITION = re.compile(r"arg([0-5]) (?:& (0x[0-9A-Fa-f]+|[0-9]+) )?== (0x[0-9A-Fa-f]+|[0-9]+)")
_LOW_HALF = 0xFFFFFFFF
_DEBUG = "debug "
PROFILES = ("default", "debug")
Rule = dict[str, object]


def build_profile(table: str, *, profile: str = "default") -> dict[str, object]:
    """The engine's profile. Raises ValueError, with the line's number, for anything that is not a clear decision."""
    verdicts: dict[str, str] = {}
    rules: list[Rule] = []
    for number, line in enumerate(table.splitlines(), 1):
        decision, _, reason = (part.strip() for part in line.partition("#"))
        if decision:
            if not reason:
                raise ValueError(f"line {number}: a decision without a reason")
            rules += _parse_rules(decision, reason, verdicts, number)
    if profile == "debug":
        rules = _lift(rules, _collect_debug(table))
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


def _collect_debug(table: str) -> set[str]:
    """The calls of the lines that begin with `debug`."""
    lines = (line.partition("#")[0].strip() for line in table.splitlines())
    return {name for line in lines if line.startswith(_DEBUG) for name in line.split()[2:]}


def _lift(rules: list[Rule], names: set[str]) -> list[Rule]:
    """The rules of the debug profile: the very same decisions, but for the calls a debugger cannot do without."""
    return [
        {key: value for key, value in rule.items() if key != "errnoRet"} | {"action": "SCMP_ACT_ALLOW"}
        if names.intersection(_names(rule))
        else rule
        for rule in rules
    ]


def _names(rule: Rule) -> list[str]:
    names = rule["names"]
    assert isinstance(names, list)
    return names


def _parse_rules(decision: str, reason: str, verdicts: dict[str, str], number: int) -> list[Rule]:
    """One line. `allow ... unless` becomes many rules: the profile's form has no "and not"."""
    verb, _, rest = decision.removeprefix(_DEBUG).partition(" ")
    if decision.startswith(_DEBUG) and verb != "deny":
        raise ValueError(f"line {number}: debug stands before a deny that it lifts")
    condition = error = exception = ""
    if verb == "allow":
        rest, _, condition = rest.partition(" if ")
        rest, _, exception = rest.partition(" unless ")
    elif verb == "deny":
        rest, _, error = rest.partition(" with ")
    else:
        raise ValueError(f"line {number}: neither allow nor deny: {verb!r}")
    names = rest.split()
    for name in names:
        # The same call on two lines is fine only where each has a condition: libseccomp joins those by "or".
        kind = f"{verb} if" if condition else f"line {number}"  # `unless` is whole on its line
        if verdicts.setdefault(name, kind) != kind:
            raise ValueError(f"line {number}: {name} is decided twice")
    if len(set(names)) != len(names) or not names:
        raise ValueError(f"line {number}: no name, or one twice")
    rule: Rule = {"names": names, "comment": reason}
    if verb == "deny":
        return [rule | {"action": "SCMP_ACT_ERRNO", "errnoRet": _ERRNO[error or "EPERM"], "args": []}]
    rule |= {"action": "SCMP_ACT_ALLOW"}
    if exception:
        first, *rest_of_it = _parse_exception(exception, number)
        return [rule | {"args": [first]}, *(rule | {"comment": "", "args": [argument]} for argument in rest_of_it)]
    return [rule | {"args": [_parse_condition(text, number) for text in condition.split(" and ") if text]}]


def _parse_exception(text: str, number: int) -> list[dict[str, object]]:
    """Comparisons of which one holds for every value of the argument but those named."""
    parts = [_parse_condition(part, number) for part in text.split(" or ")]
    index = parts[0]["index"]
    if any(part["index"] != index or part["value"] != _LOW_HALF for part in parts):
        raise ValueError(f"line {number}: exceptions are whole values of one argument")
    values = [int(str(part["valueTwo"])) for part in parts]
    return [
        {"index": index, "value": mask, "valueTwo": prefix, "op": "SCMP_CMP_MASKED_EQ"}
        for mask, prefix in _cover_rest(values)
    ]


def _cover_rest(values: list[int], *, mask: int = 0, prefix: int = 0, bit: int = 31) -> list[tuple[int, int]]:
    """(mask, prefix) of the largest blocks of 32-bit numbers without any of `values`: halves, and halves of halves."""
    inside = [value for value in values if value & mask == prefix]
    if not inside:
        return [(mask, prefix)]
    if bit < 0:
        return []
    half = mask | 1 << bit
    return [
        *_cover_rest(inside, mask=half, prefix=prefix, bit=bit - 1),
        *_cover_rest(inside, mask=half, prefix=prefix | 1 << bit, bit=bit - 1),
    ]


def _parse_condition(text: str, number: int) -> dict[str, object]:
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"line {number}: not a condition: {text!r}")
    # The kernel looks at an int's low half only, so must we: always a masked comparison.
    mask = int(match[2], 0) if match[2] else _LOW_HALF
    return {"index": int(match[1]), "value": mask, "valueTwo": int(match[3], 0), "op": "SCMP_CMP_MASKED_EQ"}


def render(profile: str = "default") -> str:
    """The text of the profile as the table has it now."""
    built = build_profile((HERE / "table.txt").read_text(encoding="utf-8"), profile=profile)
    return json.dumps(built, indent=1) + "\n"


def main() -> int:
    texts = {HERE / f"{profile}.json": render(profile) for profile in PROFILES}
    if "--check" in sys.argv:
        return int(any(not file.is_file() or file.read_text(encoding="utf-8") != text for file, text in texts.items()))
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
