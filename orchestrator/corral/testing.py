"""Doubles for tests of programs that use corral. None of them is a boundary."""

from corral.sandbox.fake import FakeCall, FakeOutcome, FakeSandbox, Script
from corral.sandbox.fake_program import FakeConsole, FakeProgram

__all__ = ["FakeCall", "FakeConsole", "FakeOutcome", "FakeProgram", "FakeSandbox", "Script"]
