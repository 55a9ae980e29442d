"""What single programs do with their arguments: run other commands, take code, write files, reach hosts."""

from __future__ import annotations

from collections.abc import Callable

from corral.policy.shell.finding import Command, Findings
from corral.policy.shell.program.awk import read_awk
from corral.policy.shell.program.builtin import (
    read_alias,
    read_callback,
    read_declare,
    read_enable,
    read_eval,
    read_move,
    read_names,
    read_options,
    read_source,
    read_trap,
)
from corral.policy.shell.program.find import read_find, read_parallel, read_xargs
from corral.policy.shell.program.git import read_git
from corral.policy.shell.program.network import (
    CLIENTS,
    CONNECTIONS,
    read_client,
    read_connection,
    read_copy,
    read_fetch,
    read_socat,
    read_ssh,
)
from corral.policy.shell.program.sed import read_sed
from corral.policy.shell.program.shell import SHELLS, find_interpreter, read_interpreter, read_shell
from corral.policy.shell.program.tool import TOOLS
from corral.policy.shell.program.wrapper import (
    WRAPPERS,
    read_code_option,
    read_flock,
    read_loader,
    read_watch,
    read_wrapper,
)

__all__ = ["Reader", "find_reader"]

Reader = Callable[[Command, Findings], None]

_READERS: dict[str, Reader] = {
    **TOOLS,
    **dict.fromkeys(WRAPPERS, read_wrapper),
    **dict.fromkeys(SHELLS, read_shell),
    **dict.fromkeys(CLIENTS, read_client),
    **dict.fromkeys(CONNECTIONS, read_connection),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), read_awk),
    **dict.fromkeys(("declare", "typeset", "export", "local", "readonly"), read_declare),
    **dict.fromkeys(("read", "unset", "let", "test", "printf", "wait", "getopts"), read_names),
    **dict.fromkeys(("mapfile", "readarray", "complete", "compgen", "bind"), read_callback),
    **dict.fromkeys(("cd", "pushd", "popd"), read_move),
    **dict.fromkeys(("enable", "hash"), read_enable),
    **dict.fromkeys(("source", "."), read_source),
    **dict.fromkeys(("su", "runuser", "script"), read_code_option),
    **dict.fromkeys(("scp", "sftp", "rsync"), read_copy),
    **dict.fromkeys(("curl", "wget"), read_fetch),
    **dict.fromkeys(("sed", "gsed"), read_sed),
    "eval": read_eval,
    "trap": read_trap,
    "alias": read_alias,
    "shopt": read_options,
    "find": read_find,
    "xargs": read_xargs,
    "parallel": read_parallel,
    "git": read_git,
    "ssh": read_ssh,
    "socat": read_socat,
    "flock": read_flock,
    "watch": read_watch,
}
_LOADERS = ("ld-linux", "ld-musl", "ld.so")


def find_reader(base: str) -> Reader | None:
    """Who reads the arguments of this program; None where they are only arguments."""
    reader = _READERS.get(base)
    if reader is not None:
        return reader
    if find_interpreter(base):
        return read_interpreter
    return read_loader if base.startswith(_LOADERS) else None
