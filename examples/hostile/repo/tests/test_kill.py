"""Kills all it can."""

import os
import signal
import unittest

from tests.report import report


class Kill(unittest.TestCase):
    def test_everybody(self):
        # Said first: the shell around us dies, and with it the call.
        report("kill", sent=True)
        os.kill(-1, signal.SIGKILL)
