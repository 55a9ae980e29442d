"""Read and write durations such as ``1h30m`` or ``2d``."""

import re

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PART = re.compile(r"(\d+)([dhms])")


def parse(text):
    """Seconds in a duration: ``parse("1h30m") == 5400``. Raises ValueError for anything else."""
    match = _PART.match(text.strip())
    if match is None:
        raise ValueError(f"not a duration: {text!r}")
    return int(match[1]) * UNITS[match[2]]


def render(seconds):
    """The shortest text for a number of seconds: ``render(5400) == "1h30m"``."""
    if seconds < 0:
        raise ValueError(f"negative duration: {seconds}")
    parts = []
    for unit, size in UNITS.items():
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
