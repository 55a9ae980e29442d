#!/bin/sh
# The fix, as the demo's agent makes it: read every part, and refuse what is left over.
set -eu
python3 - <<'PY'
from pathlib import Path

path = Path("durations.py")
text = path.read_text()
old = '''    match = _PART.match(text.strip())
    if match is None:
        raise ValueError(f"not a duration: {text!r}")
    return int(match[1]) * UNITS[match[2]]
'''
new = '''    text = text.strip()
    if not re.fullmatch(f"(?:{_PART.pattern})+", text):
        raise ValueError(f"not a duration: {text!r}")
    return sum(int(count) * UNITS[unit] for count, unit in _PART.findall(text))
'''
assert text.count(old) == 1, "durations.py is not the file this fix was made for"
path.write_text(text.replace(old, new))
PY
