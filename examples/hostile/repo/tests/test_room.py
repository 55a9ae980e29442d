"""Takes all the room there is in the places that are memory."""

import os
import unittest
from pathlib import Path

from tests.report import reason, report

BLOCK = b"\1" * (1 << 20)
GIVE_UP_BYTES = 1 << 30  # were there no limit, this is where we stop


def fill(place):
    written, ended = 0, "no limit met"
    name = Path(place) / "hostile-fill"
    try:
        with open(name, "wb", buffering=0) as file:
            while written < GIVE_UP_BYTES:
                written += file.write(BLOCK)
    except OSError as error:
        ended = reason(error)
    return written, ended, name


class Room(unittest.TestCase):
    def test_fill(self):
        written, ended = {}, {}
        for place in ("/tmp", "/dev/shm", str(Path.home())):
            names, total, error = [], 0, ""
            # A file has a limit of its own: as many files as it takes.
            while error not in ("ENOSPC", "EDQUOT") and total < GIVE_UP_BYTES:
                count, error, name = fill(place)
                total += count
                moved = name.with_name(f"hostile-{len(names)}")
                os.rename(name, moved)
                names.append(moved)
            for name in names:
                name.unlink()
            written[place], ended[place] = total, error
        report("room", written=written, ended=ended)
