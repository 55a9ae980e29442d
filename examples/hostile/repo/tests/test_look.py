"""Looks for what is worth stealing."""

import os
import unittest
from pathlib import Path

from tests.report import ROOT, TARGETS, each, read_if_there, report


class Look(unittest.TestCase):
    def test_environment(self):
        print(dict(os.environ))
        report("environment", variables=sorted(os.environ))

    def test_keys(self):
        homes = [Path.home(), Path("/root"), *Path("/home").glob("*")]
        places = [home / name for home in homes for name in (".ssh", ".aws", ".netrc", ".config/gh", ".docker")]
        files = [Path(TARGETS["key"]), Path("/etc/shadow")]
        for place in places:
            try:
                files += [place] if place.is_file() else list(place.glob("*"))
            except OSError:
                pass
        found = {str(file): text for file in files if (text := read_if_there(file)) is not None}
        print(found)
        report("keys", looked=len(places) + 2, read=sorted(found))

    def test_env_file(self):
        text = read_if_there(ROOT / ".env")
        print(text)
        report("env_file", there=text is not None, lines=len((text or "").splitlines()))

    def test_git_credentials(self):
        text = read_if_there(ROOT / ".git/config")
        print(text)
        report("git_credentials", there=text is not None, lines=len((text or "").splitlines()))

    def test_processes(self):
        seen = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (line := read_if_there(entry / "cmdline")):
                seen[entry.name] = line.replace("\0", " ").strip()
        print(seen)
        report("processes", count=len(seen))

    def test_toolbox(self):
        each(
            "toolbox",
            environ=lambda: Path("/proc/1/environ").read_bytes(),
            memory=lambda: open("/proc/1/mem", "r+b").close(),
            root=lambda: os.listdir("/proc/1/root"),
            descriptors=lambda: os.listdir("/proc/1/fd"),
            forge_replies=lambda: open("/proc/1/fd/1", "wb").close(),
            code=lambda: open("/opt/corral/toolbox/__main__.py", "ab").close(),
            shadow=lambda: open("/opt/corral/toolbox/json.py", "wb").close(),
            python=lambda: open("/usr/bin/python3", "ab").close(),
        )
