"""Doubles for tests of programs that use corral. None of them is a boundary."""

from corral.sandbox.fake import FakeCall, FakeOutcome, FakeSandbox, Script

__all__ = ["FakeCall", "FakeOutcome", "FakeSandbox", "Script"]
