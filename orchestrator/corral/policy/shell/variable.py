"""Assignments that run something, or make the names on the line mean something else."""

from __future__ import annotations

from corral.policy.shell.finding import Findings
from corral.policy.shell.model import Word

# The value is a command line, run by the shell itself or by a program that is told so.
_COMMANDS = frozenset(
    (
        *("PROMPT_COMMAND", "PAGER", "MANPAGER", "GIT_PAGER", "EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"),
        *(
            "GIT_EXTERNAL_DIFF",
            "GIT_SSH_COMMAND",
            "GIT_SSH",
            "GIT_ASKPASS",
            "SSH_ASKPASS",
            "SUDO_ASKPASS",
            "SUDO_EDITOR",
        ),
        *("LESSOPEN", "LESSCLOSE", "BROWSER", "SYSTEMD_PAGER", "RSYNC_RSH", "CVS_RSH", "FCEDIT", "GIT_PROXY_COMMAND"),
        *("RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CC", "CXX", "MAKE", "SHELL"),
    )
)
# Expanded when shown, which runs the substitutions in it.
_PROMPTS = frozenset(("PS0", "PS1", "PS2", "PS4"))
_SCRIPTS = frozenset(("BASH_ENV", "ENV", "PYTHONSTARTUP", "RUBYLIB_STARTUP", "ZDOTDIR"))
# Other code is loaded or other options hold; which, is not in the line.
_LOADERS = frozenset(
    (
        *(
            "LD_PRELOAD",
            "LD_AUDIT",
            "NODE_OPTIONS",
            "PERL5OPT",
            "PERL5DB",
            "RUBYOPT",
            "JAVA_TOOL_OPTIONS",
            "_JAVA_OPTIONS",
        ),
        *("SHELLOPTS", "BASHOPTS", "TAR_OPTIONS", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"),
        *(
            "GIT_CONFIG_GLOBAL",
            "GIT_CONFIG_SYSTEM",
            "GIT_EXEC_PATH",
            "GIT_TEMPLATE_DIR",
            "MAKEFLAGS",
            "LESS",
            "VIMINIT",
        ),
    )
)
_PREFIXES = ("BASH_FUNC_", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "DYLD_")
# The names on the line may mean other files; nothing runs by this alone.
_PLACES = frozenset(
    (
        *("PATH", "IFS", "CDPATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PERL5LIB", "RUBYLIB"),
        *("NODE_PATH", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "RIPGREP_CONFIG_PATH"),
        *(
            "XDG_CONFIG_HOME",
            "CLASSPATH",
            "INPUTRC",
            "TERMINFO",
            "LOCPATH",
            "EXECIGNORE",
            "GLOBIGNORE",
            "BASH_XTRACEFD",
        ),
    )
)


def read_assignment(name: str, value: Word, within: tuple[str, ...], findings: Findings) -> None:
    """One `NAME=value`, of the shell, of `env`, of `export`."""
    base = name.split("[", 1)[0].rstrip("+")
    if value.text is not None:
        look_for_evaluated(value.text, within, findings)
    if not base.isupper() and not base.startswith(_PREFIXES):
        return
    if base in _COMMANDS or base in _PROMPTS:
        findings.variables[base] = None
        if value.text is None:
            findings.tell_unknown(f"{base} runs what is known at run time only")
        elif value.text:
            findings.read(value.text, within, expansions_only=base in _PROMPTS)
    elif base in _SCRIPTS:
        findings.variables[base] = None
        if value.text != "":
            findings.run_script(value)
    elif base in _LOADERS or base.startswith(_PREFIXES):
        findings.variables[base] = None
        findings.tell_unknown(f"{base} makes programs load or do other things")
    elif base in _PLACES:
        findings.variables[base] = None


def look_for_evaluated(text: str, within: tuple[str, ...], findings: Findings) -> None:
    """`a[$(cmd)]` runs cmd wherever the shell takes it for the name of a variable or a number: also out of quotes."""
    place = text.find("[")
    if place >= 0 and ("$(" in text[place:] or "`" in text[place:]):
        findings.tell_unknown("a subscript runs code where the shell evaluates it")
        findings.read(text, within, expansions_only=True)
