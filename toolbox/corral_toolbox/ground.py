"""Whether the toolbox stands on firm ground: nothing of image or workspace lies over its files, or can come to."""

import os

PLACE = "/opt/corral"
_MOUNTS = "/proc/self/mountinfo"


def find_fault(place: str = PLACE, mounts: str = _MOUNTS) -> str:
    """What is wrong, or "". Asked before anything untrusted runs.

    An image may have links where the box's own directories are to be, and the runtime follows them: what a command may
    write to would lie on the toolbox's modules, some of which are loaded late.
    """
    if os.path.realpath(place) != place:
        return f"{place} is a link in this image"
    with open(mounts, "rb") as lines:
        points = [line.split(b" ", 5)[4] for line in lines]
    below = os.fsencode(place) + b"/"
    if any(point.startswith(below) for point in points):
        return f"a link of this image leads into {place}"
    above = os.stat(os.path.dirname(place))
    if above.st_uid or above.st_mode & 0o022:
        return f"{os.path.dirname(place)} is not root's in this image"
    return ""
