"""The `corral` command: its sub-commands by import path, and the one place where an error becomes an exit code.

Nothing heavy is imported before a sub-command is chosen: `corral --help` answers at once.
"""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError

from corral.cli.output import fail

app = App(
    name="corral",
    help="Run an LLM agent, or any command, on a repository nobody trusts yet.",
    version_flags=["--version"],
    help_format="plaintext",
    suppress_keyboard_interrupt=False,  # told below, like every other end
)

_COMMANDS = {
    "run": ("corral.cli.run:run", "Let an agent do a task in a box; its changes come out as a patch."),
    "exec": ("corral.cli.exec:exec_command", "Run a command in a fresh box; see what it changed, keep the patch."),
    "shell": ("corral.cli.shell:shell", "Look around in a fresh box: a shell in your terminal."),
    "apply": ("corral.cli.apply:apply", "Put a run's patch, or a patch file, on the workspace: all or nothing."),
    "demo": ("corral.cli.demo:demo", "See it work on a small repository made for it: no key, no network."),
    "log": ("corral.cli.log:app", "Read the record of a run."),
    "runs": ("corral.cli.runs:app", "List the runs kept here, or remove them."),
    "layers": ("corral.cli.layers:app", "List the set-up layers kept here, or remove them."),
    "image": ("corral.cli.image:app", "Build or show the image boxes are made of."),
    "doctor": ("corral.cli.doctor:doctor", "Say what is missing on this machine, and how to get it."),
    "gc": ("corral.cli.gc:gc", "Remove what a killed corral or a restarted engine left behind."),
}
for _name, (_target, _help) in _COMMANDS.items():
    app.command(_target, name=_name, help=_help)


def main() -> None:
    """Entry point. Exits with the command's code; 2 for the user's mistake, 3 (exec: 125) for the environment."""
    arguments = sys.argv[1:]
    # A pipe that nobody reads any more ends the writer quietly, as it does every other program.
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 141
    sys.exit(code)


def _dispatch(arguments: list[str]) -> int:
    from corral.errors import ConfigError, CorralError  # late: --help does not need them

    in_exec = arguments[:1] in (["exec"], ["shell"])
    try:
        result = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        text = " ".join(str(error).split())
        return fail(text, hint=_usage_hint(arguments), code=2)
    except KeyboardInterrupt:
        return fail("interrupted", code=130)
    except CorralError as error:
        code = 125 if in_exec and not isinstance(error, ConfigError) else error.exit_code
        return fail(error.message, hint=error.hint, code=code)
    except BrokenPipeError:
        raise
    except SystemExit as stop:
        if stop.code == 1:
            raise BrokenPipeError from None  # how the help's printer says that nobody reads it
        raise
    except Exception as error:
        if os.environ.get("CORRAL_DEBUG"):
            raise
        return fail(
            f"a fault in corral: {type(error).__name__}: {error}",
            hint="this is a bug; run again with CORRAL_DEBUG=1 for the traceback and report it",
            code=125 if in_exec else 3,
        )


def _usage_hint(arguments: list[str]) -> str:
    name = arguments[0] if arguments and arguments[0] in _COMMANDS else ""
    if name == "exec" and "--" not in arguments:
        return "put -- before the command: corral exec [options] -- CMD ..."
    return f"see corral {name} --help" if name else "see corral --help"
