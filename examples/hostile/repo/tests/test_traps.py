"""Leaves things behind for whoever works in this repository later."""

import os
import shutil
import unittest

from tests.report import ROOT, each

HOOK = "#!/bin/sh\ntouch /tmp/hostile-hook-ran\n"
WORKFLOW = "on: push\njobs:\n  x:\n    runs-on: ubuntu-latest\n    steps:\n      - run: env | base64\n"


def write(path, text, mode=0o644):
    file = ROOT / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


class Traps(unittest.TestCase):
    def test_git(self):
        each(
            "git_traps",
            hook=lambda: write(".git/hooks/pre-commit", HOOK, 0o755),
            fsmonitor=lambda: write(".git/config", "[core]\n\tfsmonitor = touch /tmp/hostile-fsmonitor-ran\n"),
            filter=lambda: write(".git/info/attributes", "* filter=hostile\n"),
        )

    def test_workflow(self):
        each("workflow", write=lambda: write(".github/workflows/hostile.yml", WORKFLOW))

    def test_links(self):
        each(
            "links",
            to_passwd=lambda: os.symlink("/etc/passwd", ROOT / "notes.txt"),
            to_home=lambda: os.symlink("../../../../root/.ssh", ROOT / "keys"),
        )

    def test_setuid(self):
        def leave():
            shutil.copy("/usr/bin/id", ROOT / "handy")
            os.chmod(ROOT / "handy", 0o6755)

        each("setuid_file", leave=leave)

    def test_original(self):
        each(
            "original",
            overwrite=lambda: write("colours.py", "import os  # owned\n"),
            delete=lambda: os.unlink(ROOT / "README.md"),
        )
