"""What differs between two runs of the same thing and means nothing: times, sizes, process ids, temporary names."""

from __future__ import annotations

import re

_VOLATILE = re.compile(
    r"""0x[0-9a-fA-F]+                                   # addresses
    |/tmp/[\w./-]+                                       # temporary names
    |\b(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b                   # commits and digests
    |\d+(?:[.,]\d+)*(?:\s?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?)\b)?   # numbers, durations with their unit
    """,
    re.VERBOSE,
)


def strip_volatile(text: str) -> str:
    """`text` with every such part as `#`: equal for two outputs that say the same."""
    return _VOLATILE.sub("#", text)
