"""Programs whose arguments are another command: they are opened, and the command inside is read like any other."""

from __future__ import annotations

import re
from dataclasses import dataclass

from corral.policy.shell.finding import Command, Findings
from corral.policy.shell.model import Word
from corral.policy.shell.program.option import Options, Parsed, parse_options
from corral.policy.shell.variable import read_assignment

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wrapper:
    options: Options
    skipped: int = 0  # operands before the command
    assigns: bool = False  # `NAME=value` may stand before it
    names_only: tuple[str, ...] = ()  # with one of these options nothing is run


WRAPPERS: dict[str, Wrapper] = {
    "builtin": Wrapper(Options()),
    "busybox": Wrapper(Options(long_flags=("list", "help", "install"))),
    "caffeinate": Wrapper(Options("disu", "tw")),
    "chrt": Wrapper(Options("abdefimoprv", "DPT", long_flags=("fifo", "rr", "other", "batch", "idle")), skipped=1),
    "chroot": Wrapper(Options(long_flags=("skip-chdir",), long_values=("userspec", "groups")), skipped=1),
    "command": Wrapper(Options("pvV"), names_only=("v", "V")),
    "dbus-run-session": Wrapper(Options(long_values=("config-file", "dbus-daemon"))),
    "doas": Wrapper(Options("Lns", "aCu")),
    "eatmydata": Wrapper(Options()),
    "env": Wrapper(
        Options(
            "i0v",
            "uCSa",
            long_flags=("ignore-environment", "null", "debug"),
            long_values=("unset", "chdir", "split-string", "argv0"),
            long_attached=("block-signal", "default-signal", "ignore-signal"),
        ),
        assigns=True,
    ),
    "exec": Wrapper(Options("cl", "a")),
    "faketime": Wrapper(Options("mfp", long_flags=("exclude-monotonic",)), skipped=1),
    "ionice": Wrapper(Options("t", "cnpPu", long_flags=("ignore",), long_values=("class", "classdata"))),
    "linux32": Wrapper(Options("vRFZLXBIST3")),
    "linux64": Wrapper(Options("vRFZLXBIST3")),
    "ltrace": Wrapper(Options("cCfLrSTt", "aADeFlnopsuwxX")),
    "nice": Wrapper(Options("", "n", long_values=("adjustment",), digits=True)),
    "nocache": Wrapper(Options("", "n")),
    "nohup": Wrapper(Options()),
    "numactl": Wrapper(Options("lsHpa", "ipmNC", long_values=("cpunodebind", "membind", "interleave"))),
    "prlimit": Wrapper(Options("", "po", attached="cdefilmnqrstuvxy")),
    "proot": Wrapper(Options("0", "rbqwvki")),
    "rlwrap": Wrapper(Options("acimnNoOrRvX", "bCDeffgHIlpPqsStz")),
    "setarch": Wrapper(Options("vRFZLXBIST3", long_flags=("addr-no-randomize",)), skipped=1),
    "setpriv": Wrapper(Options("d", long_flags=("no-new-privs", "clear-groups", "init-groups", "reset-env"))),
    "setsid": Wrapper(Options("cfw", long_flags=("ctty", "fork", "wait"))),
    "stdbuf": Wrapper(Options("", "ioe", long_values=("input", "output", "error"))),
    "strace": Wrapper(Options("cCdDfFhiknNqrtTvVwxyYzZ", "abeEIoOpPsSuUX")),
    "sudo": Wrapper(
        Options(
            "AbBEeHiKklNnPSsVv",
            "CDgGhpRrtTUu",
            long_flags=("preserve-env", "set-home", "login", "non-interactive", "stdin", "background", "shell"),
            long_values=("user", "group", "chdir", "prompt", "host", "role", "type", "chroot"),
        ),
        assigns=True,
        names_only=("l", "v", "K", "V"),
    ),
    "taskset": Wrapper(Options("ac", "p", long_flags=("cpu-list", "all-tasks")), skipped=1),
    "time": Wrapper(Options("apqvV", "fo", long_flags=("portability", "verbose"), long_values=("format", "output"))),
    "timeout": Wrapper(
        Options(
            "vpf",
            "ks",
            long_flags=("foreground", "preserve-status", "verbose"),
            long_values=("kill-after", "signal"),
        ),
        skipped=1,
    ),
    "toybox": Wrapper(Options()),
    "unbuffer": Wrapper(Options("p")),
    "unshare": Wrapper(
        Options(
            "cfimnprTuUC",
            "SGRw",
            long_flags=("fork", "map-root-user", "map-current-user", "mount-proc", "ipc", "net", "pid", "user", "uts"),
            long_values=("root", "wd", "setuid", "setgid"),
        )
    ),
    "valgrind": Wrapper(Options("qv", long_attached=("tool", "leak-check", "error-exitcode", "log-file"))),
    "xvfb-run": Wrapper(Options("al", "efnpsw", long_values=("server-args", "server-num"))),
}
WRAPPERS["eatmydata"] = WRAPPERS["catchsegv"] = WRAPPERS["nohup"]


def read_wrapper(command: Command, findings: Findings) -> None:
    wrapper = WRAPPERS[command.base]
    parsed = parse_options(command.words, wrapper.options)
    if parsed.has(*wrapper.names_only):
        return
    if not parsed.is_known:
        findings.tell_unknown(f"what {command.base} runs depends on options that are not known here")
    operands = _take_assignments(command, parsed, findings) if wrapper.assigns else parsed.operands
    _read_own_options(command, parsed, findings)
    operands = operands[wrapper.skipped :]
    if operands:
        findings.run(operands, (*command.within, command.base), command.stdin)
    elif command.base == "sudo" and parsed.has("i", "s", "login", "shell") and command.stdin.given:
        findings.tell_unknown("code is known at run time only")


def _take_assignments(command: Command, parsed: Parsed, findings: Findings) -> list[Word]:
    operands = list(parsed.operands)
    while operands and operands[0].text is not None and (match := _ASSIGNMENT.fullmatch(operands[0].text)):
        read_assignment(match[1], Word(match[2]), command.within, findings)
        operands.pop(0)
    return operands


def _read_own_options(command: Command, parsed: Parsed, findings: Findings) -> None:
    if command.base == "env":
        findings.moves = findings.moves or parsed.has("C", "chdir")
        for value in parsed.get("S", "split-string"):
            # Its own small language of quotes and variables: plain words are what everybody writes.
            if value.text is None or re.search(r"[^A-Za-z0-9_./:,=+@% -]", value.text):
                findings.tell_unknown("env splits what is known at run time only")
            elif words := [Word(text) for text in value.text.split()]:
                findings.run([Word("env"), *words, *parsed.operands], (*command.within, command.base), command.stdin)
                parsed.operands.clear()
    if command.base in ("sudo", "doas") and parsed.has("e"):
        for word in parsed.operands:
            findings.write(word)
    if command.base in ("strace", "ltrace", "time"):
        for value in parsed.get("o", "output"):
            findings.write(value)


def read_flock(command: Command, findings: Findings) -> None:
    """`flock FILE CMD...`, `flock FILE -c CODE`."""
    parsed = parse_options(command.words, Options("sexnoFuv", "wE", long_flags=("shared", "nonblock", "verbose")))
    inner = parsed.operands[1:]
    if inner and inner[0].text in ("-c", "--command"):
        read_code_word(inner[1] if len(inner) > 1 else Word(None), command, findings)
    elif inner:
        findings.run(inner, (*command.within, command.base), command.stdin)


def read_watch(command: Command, findings: Findings) -> None:
    """`watch CMD...` hands its words, joined, to a shell."""
    flags = "bdegtcxpwr"
    long_flags = ("differences", "no-title", "exec", "color", "beep", "errexit", "chgexit", "precise")
    parsed = parse_options(command.words, Options(flags, "nq", long_flags=long_flags, long_values=("interval",)))
    if not parsed.operands:
        return
    if parsed.has("x", "exec"):
        findings.run(parsed.operands, (*command.within, command.base), command.stdin)
    else:
        read_joined(parsed.operands, command, findings)


def read_joined(words: list[Word], command: Command, findings: Findings) -> None:
    """Words that are put together with blanks and read as code."""
    texts = [word.text for word in words if word.text is not None]
    if len(texts) != len(words):
        findings.tell_unknown(f"{command.base} runs code that is known at run time only")
    elif texts:
        findings.read(" ".join(texts), (*command.within, command.base), command.stdin)


def read_code_word(word: Word, command: Command, findings: Findings) -> None:
    """One word that is code."""
    read_joined([word], command, findings)


def read_code_option(command: Command, findings: Findings) -> None:
    """`su -c CODE`, `script -c CODE`, `runuser -c CODE`; what else they start is a login shell."""
    known = Options(
        "aefqlmpt" if command.base == "script" else "lmpf",
        "cBIOToEm" if command.base == "script" else "cgGsw",
        long_flags=("login", "quiet", "append", "return", "flush", "preserve-environment"),
        long_values=("command", "shell", "user", "group"),
        anywhere=True,
    )
    parsed = parse_options(command.words, known)
    codes = parsed.get("c", "command")
    for code in codes:
        read_code_word(code, command, findings)
    if command.base == "runuser" and not codes and parsed.get("user"):
        findings.run(parsed.operands or [Word("")], (*command.within, command.base), command.stdin)
    elif not codes and command.stdin.given:
        findings.tell_unknown("code is known at run time only")
    if command.base == "script":
        for word in parsed.operands[:1] or [Word("typescript")]:
            findings.write(word)


def read_loader(command: Command, findings: Findings) -> None:
    """The dynamic loader started as a program: `/lib64/ld-linux-x86-64.so.2 PROGRAM ...`."""
    options = Options(long_values=("library-path", "inhibit-rpath", "audit", "preload", "argv0"))
    parsed = parse_options(command.words, options)
    if parsed.operands:
        findings.run(parsed.operands, (*command.within, command.base), command.stdin)
