"""What a command line is known to do, without a parser: one plain command, or nothing is known.

A command counts as parsed only when it is a single program with arguments made of characters that no shell gives a
meaning to. It is safe when the program can only read, whichever options it gets: programs that can write, run others
or take an output file through an option or an extra operand (find, sort, sed, awk, tar, git, rg, uniq, date, tee, env,
xargs, ...) are left out on purpose. Whatever is not understood is not safe.
"""

from __future__ import annotations

import re

from corral.schema.policy import CommandFacts

# SECURITY: no quote, $, `, \, glob, redirection, separator, brace, ~, # or newline gets through;
# test_a_command_with_shell_syntax_is_not_parsed
_PLAIN = re.compile(r"[A-Za-z0-9_./:,=+@%-]+(?: +[A-Za-z0-9_./:,=+@%-]+)*")

SAFE_PROGRAMS: frozenset[str] = frozenset().union(
    ("basename", "cat", "cd", "cksum", "cmp", "comm", "cut", "dirname", "du", "echo", "egrep"),
    ("expand", "false", "fgrep", "fold", "grep", "head", "id", "ls", "md5sum", "nl", "nproc"),
    ("od", "paste", "printenv", "pwd", "readlink", "realpath", "seq", "sha1sum", "sha256sum", "sha512sum", "stat"),
    ("tac", "tail", "true", "uname", "wc", "whoami"),
)


def parse_command(command: str) -> CommandFacts:
    """The facts of one command line."""
    text = command.strip(" ")
    if not _PLAIN.fullmatch(text):
        return CommandFacts()
    program = text.split(" ", 1)[0]
    if "=" in program:  # an assignment before the program, or instead of one
        return CommandFacts()
    return CommandFacts(parsed=True, programs=(program,), safe=program in SAFE_PROGRAMS)
