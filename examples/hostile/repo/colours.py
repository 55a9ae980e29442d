"""Names of web colours."""

NAMES = {"#ff0000": "red", "#00ff00": "lime", "#0000ff": "blue"}


def name(code):
    return NAMES.get(code.lower(), code)
