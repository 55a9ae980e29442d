"""git: settings, variables and options of it that are command lines, and what its subcommands run or write."""

from __future__ import annotations

import re

from corral.policy.shell.finding import Command, Findings
from corral.policy.shell.model import Word
from corral.policy.shell.program.network import add_remotes
from corral.policy.shell.program.option import Options, find_long, parse_options

_GLOBAL = Options(
    "pPvh",
    "Cc",
    long_flags=("paginate", "no-pager", "bare", "no-replace-objects", "literal-pathspecs", "version", "help"),
    long_values=("git-dir", "work-tree", "namespace", "config-env", "super-prefix", "attr-source"),
    long_attached=("exec-path", "list-cmds"),
)
# Settings whose value is a command line.
_COMMANDS = re.compile(
    r"(?i)(core\.(pager|editor|sshcommand|askpass|gitproxy|alternaterefscommand)|sequence\.editor|diff\.external"
    r"|diff\..+\.(command|textconv)|merge\..+\.driver|filter\..+\.(clean|smudge|process)|(diff|merge)tool\..+\.(cmd|path)"
    r"|pager\..+|gpg(\..+)?\.program|interactive\.difffilter|uploadpack\.packobjectshook|remote\..+\.(uploadpack|receivepack)"
    r"|browser\..+\.(cmd|path)|man\..+\.(cmd|path)|trailer\..+\.(cmd|command)|imap\.tunnel|sendemail\.(smtpserver|tocmd|cccmd)"
    r"|credential(\..+)?\.helper|core\.fsmonitor|submodule\..+\.update|gui\..*cmd)"
)
_FILES = re.compile(r"(?i)(core\.hookspath|include\.path|includeif\..+\.path|init\.templatedir|core\.attributesfile)")
_SUBCOMMANDS = frozenset(
    (
        *("add", "am", "annotate", "apply", "archive", "bisect", "blame", "branch", "bugreport", "bundle", "cat-file"),
        *("check-attr", "check-ignore", "check-mailmap", "check-ref-format", "checkout", "checkout-index", "cherry"),
        *(
            "cherry-pick",
            "clean",
            "clone",
            "column",
            "commit",
            "commit-graph",
            "commit-tree",
            "config",
            "count-objects",
        ),
        *("credential", "credential-cache", "credential-store", "describe", "diagnose", "diff", "diff-files"),
        *("diff-index", "diff-tree", "difftool", "fast-export", "fast-import", "fetch", "fetch-pack", "filter-branch"),
        *("fmt-merge-msg", "for-each-ref", "for-each-repo", "format-patch", "fsck", "gc", "get-tar-commit-id", "grep"),
        *("hash-object", "help", "hook", "index-pack", "init", "init-db", "interpret-trailers", "log", "ls-files"),
        *("ls-remote", "ls-tree", "mailinfo", "mailsplit", "maintenance", "merge", "merge-base", "merge-file"),
        *("merge-index", "merge-tree", "mergetool", "mktag", "mktree", "multi-pack-index", "mv", "name-rev", "notes"),
        *("pack-objects", "pack-refs", "patch-id", "prune", "prune-packed", "pull", "push", "range-diff", "read-tree"),
        *("rebase", "reflog", "remote", "repack", "replace", "request-pull", "rerere", "reset", "restore", "rev-list"),
        *("rev-parse", "revert", "rm", "send-pack", "shortlog", "show", "show-branch", "show-index", "show-ref"),
        *("sparse-checkout", "stage", "stash", "status", "stripspace", "submodule", "switch", "symbolic-ref", "tag"),
        *("unpack-file", "unpack-objects", "update-index", "update-ref", "update-server-info", "var", "verify-commit"),
        *("verify-pack", "verify-tag", "version", "whatchanged", "worktree", "write-tree"),
    )
)
# Options of any subcommand whose value is a command line, and those that name a file to write.
_LONG_CODE = (
    *("upload-pack", "receive-pack", "exec", "extcmd", "open-files-in-pager", "tree-filter", "index-filter"),
    *(
        "msg-filter",
        "parent-filter",
        "commit-filter",
        "tag-name-filter",
        "env-filter",
        "setup",
        "smtp-server",
        "to-cmd",
    ),
)
_LONG_FILES = ("output", "output-directory", "export-marks")
_SHORT_CODE = {"clone": "u", "fetch": "", "rebase": "x", "difftool": "x", "grep": "O", "ls-remote": ""}
_SHORT_FILES = {"archive": "o", "format-patch": "o"}
# Letters that take a value: a group ends at them.
_SHORT_VALUES = {"grep": "efABCm", "clone": "bocj", "rebase": "sXC", "difftool": "t"}
_REMOTE = frozenset(("clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule", "archive", "fetch-pack"))


def read_git(command: Command, findings: Findings) -> None:
    parsed = parse_options(command.words, _GLOBAL)
    aliases: dict[str, Word] = {}
    for name, value in parsed.options:
        if name == "c" and value is not None:
            _read_setting(value, aliases, command, findings)
        elif name in ("config-env", "exec-path") and (value is not None or name == "config-env"):
            findings.tell_unknown(f"git gets what it runs by --{name}")
        elif name in ("git-dir", "work-tree"):
            findings.variables["GIT_DIR" if name == "git-dir" else "GIT_WORK_TREE"] = None
    if not parsed.is_known:
        findings.tell_unknown("git gets options that are not known here")
    if not parsed.operands:
        return
    subcommand, *words = parsed.operands
    if subcommand.text in aliases:
        _read_alias(aliases[subcommand.text or ""], words, command, findings)
    elif subcommand.text is None or subcommand.text not in _SUBCOMMANDS:
        findings.tell_unknown("git gets a subcommand that is not known here, an alias perhaps")
    else:
        _read_subcommand(subcommand.text, words, command, findings)


def _read_setting(setting: Word, aliases: dict[str, Word], command: Command, findings: Findings) -> None:
    if setting.text is None:
        findings.tell_unknown("git gets a setting that is known at run time only")
        return
    key, separator, value = setting.text.partition("=")
    if key.lower().startswith("alias."):
        aliases[key[6:]] = Word(value)
    elif separator:
        _read_value(key, Word(value), command, findings)


def _read_value(key: str, value: Word, command: Command, findings: Findings) -> None:
    """A setting, given for once or to stay."""
    if key.lower().startswith("alias."):
        _read_alias(value, [], command, findings)
    elif _COMMANDS.fullmatch(key):
        if value.text is None:
            findings.tell_unknown(f"{key} runs what is known at run time only")
        elif value.text.lower() not in ("", "true", "false", "0", "1", "cat", "cache", "store"):
            findings.read(value.text.removeprefix("!"), (*command.within, command.base))
    elif _FILES.fullmatch(key):
        findings.run_script(value)


def _read_alias(alias: Word, words: list[Word], command: Command, findings: Findings) -> None:
    within = (*command.within, command.base)
    if alias.text is None:
        findings.tell_unknown("a git alias is known at run time only")
    elif alias.text.startswith("!"):
        findings.read(alias.text[1:], within)
    elif parts := alias.text.split():
        findings.run([Word(command.name), *map(Word, parts), *words], within)


def _read_subcommand(name: str, words: list[Word], command: Command, findings: Findings) -> None:
    within = (*command.within, command.base)
    if name == "bisect" and words and words[0].text == "run":
        if words[1:]:
            findings.run(words[1:], within)
        return
    if name == "submodule" and any(word.text == "foreach" for word in words):
        place = next(place for place, word in enumerate(words) if word.text == "foreach")
        _read_words([word for word in words[place + 1 :] if word.text != "--recursive"], command, findings)
        return
    if name == "config":
        _read_config(words, command, findings)
        return
    _read_options(name, words, command, findings)
    if name in _REMOTE:
        add_remotes(words, findings)
        for word in words:
            if word.text is not None and word.text.startswith("ext::"):
                findings.read(word.text[5:], within)


def _read_options(name: str, words: list[Word], command: Command, findings: Findings) -> None:
    left = iter(words)
    for word in left:
        text = word.text
        if text == "--":
            return
        if text is None or not text.startswith("-"):
            continue
        if text.startswith("--"):
            option, separator, value = text[2:].partition("=")
            full = find_long(option, (*_LONG_CODE, *_LONG_FILES)) if len(option) > 3 else None
            if full is None:
                continue
            argument = (
                Word(value) if separator else next(left, Word("")) if full != "open-files-in-pager" else Word("less")
            )
            if full in _LONG_FILES:
                findings.write(argument)
            else:
                _read_words([argument], command, findings)
            continue
        for place, letter in enumerate(text[1:], 2):
            if letter in _SHORT_CODE.get(name, ""):
                attached = (
                    Word(text[place:]) if text[place:] else Word("less") if letter == "O" else next(left, Word(""))
                )
                _read_words([attached], command, findings)
                break
            if letter in _SHORT_FILES.get(name, ""):
                findings.write(Word(text[place:]) if text[place:] else next(left, Word("")))
                break
            if letter in _SHORT_VALUES.get(name, ""):
                break


def _read_words(words: list[Word], command: Command, findings: Findings) -> None:
    texts = [word.text for word in words if word.text is not None]
    if len(texts) != len(words):
        findings.tell_unknown("git runs code that is known at run time only")
    elif texts:
        findings.read(" ".join(texts), (*command.within, command.base))


def _read_config(words: list[Word], command: Command, findings: Findings) -> None:
    plain = [word for word in words if word.text is None or not word.text.startswith("-")]
    if plain and plain[0].text in ("set", "get", "unset", "list", "edit"):
        plain = plain[1:]
    if len(plain) > 1 and plain[0].text is not None:
        _read_value(plain[0].text, plain[1], command, findings)
    elif plain and plain[0].text is None and len(plain) > 1:
        findings.tell_unknown("git gets a setting that is known at run time only")
