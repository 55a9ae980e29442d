"""What a command line would really run: programs, arguments, files written, hosts, and what cannot be known."""

from corral.policy.shell.model import CommandLine, Program
from corral.policy.shell.reader import MAX_BYTES, read_command_line

__all__ = ["MAX_BYTES", "CommandLine", "Program", "read_command_line"]
