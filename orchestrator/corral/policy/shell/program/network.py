"""Programs that reach other hosts: the hosts they name, the code they send there, the commands they start here."""

from __future__ import annotations

import re

from corral.policy.shell.finding import Command, Findings
from corral.policy.shell.model import Word
from corral.policy.shell.program.option import Options, Parsed, parse_options

_URL = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/@\s]*@)?(\[[0-9A-Fa-f:.]+\]|[^/:?#\s]+)", re.IGNORECASE)
_REMOTE = re.compile(r"(?:[\w.+-]+@)?([\w.-]+\.[\w.-]+|localhost|[\w-]{2,}(?=:))(?::(?!//).*)?", re.DOTALL)
_BARE = re.compile(r"([\w-]+(?:\.[\w-]+)+)(?::[0-9]+)?(?:[/?#].*)?", re.DOTALL)
_SSH = Options("1246AaCfGgKkMNnqsTtVvXxYy", "BbcDEeFIiJLlmOopPQRSWw")
_SSH_CODE = re.compile(
    r"(?i)\s*(proxycommand|localcommand|knownhostscommand|pkcs11provider|remotecommand)\s*[= ]\s*(.+)", re.DOTALL
)
_CURL = Options(
    "#0146aBfgGiIjJklLMnNOpqRsSvVZ",
    "AbcCdDeEFhHKmoPQrtTuUwxXyYz",
    long_flags=("silent", "location", "fail", "show-error", "remote-name", "insecure", "compressed", "head", "verbose"),
    long_values=(
        *("output", "output-dir", "dump-header", "cookie-jar", "config", "data", "data-raw", "data-binary", "header"),
        *(
            "request",
            "user",
            "user-agent",
            "url",
            "proxy",
            "form",
            "upload-file",
            "max-time",
            "retry",
            "connect-timeout",
        ),
        *(
            "trace",
            "trace-ascii",
            "stderr",
            "write-out",
            "resolve",
            "cacert",
            "cert",
            "key",
            "data-urlencode",
            "cookie",
        ),
    ),
    anywhere=True,
)
_WGET = Options(
    "bcdFhHkKLmNnpqrSvVx46E",
    "aABeDGiIlOoPQRtTUwX",
    long_flags=("quiet", "continue", "recursive", "no-check-certificate", "mirror", "no-verbose", "spider"),
    long_values=(
        *("output-document", "output-file", "append-output", "directory-prefix", "use-askpass", "execute", "header"),
        *("user-agent", "post-data", "post-file", "tries", "timeout", "input-file", "rejected-log", "warc-file"),
    ),
    anywhere=True,
)
_RSYNC = Options(
    "avzrlptgoDunqhPWSxcHAXKLEOJbRdiy046m8sCIk",
    "eBTfM@",
    long_flags=("archive", "delete", "verbose", "compress", "progress", "dry-run", "stats", "partial", "recursive"),
    long_values=("rsh", "rsync-path", "exclude", "include", "files-from", "log-file", "temp-dir", "backup-dir"),
    anywhere=True,
)
_COPY = Options("12346ABCOpqRrTv", "cDFiJloPSX", anywhere=True)


def find_host(text: str) -> str | None:
    """The host of a URL."""
    match = _URL.match(text)
    return match[1] if match else None


def add_hosts(words: list[Word], findings: Findings) -> None:
    """URLs among the words."""
    for word in words:
        if word.text is not None and "://" in word.text:
            for match in _URL.finditer(word.text):
                findings.hosts[match[1]] = None


def add_remotes(words: list[Word], findings: Findings) -> None:
    """URLs, and places of the form `user@host:path`."""
    add_hosts(words, findings)
    for word in words:
        if (
            word.text is not None
            and "://" not in word.text
            and ":" in word.text
            and not word.text.startswith(("-", "/", "."))
        ):
            match = _REMOTE.fullmatch(word.text)
            if match and not word.text.startswith("ext::"):
                findings.hosts[match[1]] = None


def read_ssh(command: Command, findings: Findings) -> None:
    """`ssh HOST CODE...`: the words are joined and read by a shell over there."""
    parsed = parse_options(command.words, _SSH)
    _read_ssh_settings(parsed, command, findings)
    if not parsed.operands:
        return
    target, *words = parsed.operands
    if target.text is None:
        findings.more_hosts = True
    else:
        findings.hosts[find_host(target.text) or target.text.rsplit("@", 1)[-1]] = None
    # Options may follow the host, too.
    rest = parse_options(words, _SSH)
    _read_ssh_settings(rest, command, findings)
    texts = [word.text for word in rest.operands if word.text is not None]
    if len(texts) != len(rest.operands):
        findings.tell_unknown("ssh runs code that is known at run time only")
    elif texts:
        findings.read(" ".join(texts), (*command.within, command.base), command.stdin)
    elif command.stdin.given:
        findings.tell_unknown("code is known at run time only")


def _read_ssh_settings(parsed: Parsed, command: Command, findings: Findings) -> None:
    for value in parsed.get("o"):
        if value.text is None:
            findings.tell_unknown("ssh gets a setting that is known at run time only")
        elif match := _SSH_CODE.fullmatch(value.text):
            findings.read(match[2], (*command.within, command.base))
    for value in parsed.get("F"):
        findings.run_script(value)
    for value in parsed.get("J"):
        for part in (value.text or "").split(","):
            if part:
                findings.hosts[part.rsplit("@", 1)[-1]] = None


def read_copy(command: Command, findings: Findings) -> None:
    """scp, sftp, rsync."""
    is_rsync = command.base == "rsync"
    parsed = parse_options(command.words, _RSYNC if is_rsync else _COPY)
    for value in parsed.get("e", "rsh") if is_rsync else parsed.get("S", "D"):
        if value.text is None:
            findings.tell_unknown(f"{command.base} runs code that is known at run time only")
        else:
            findings.read(value.text, (*command.within, command.base))
    if not is_rsync:
        _read_ssh_settings(parsed, command, findings)
    add_remotes(parsed.operands, findings)
    if len(parsed.operands) > 1:
        target = parsed.operands[-1]
        if target.text is None or not (":" in target.text and _REMOTE.fullmatch(target.text)):
            findings.write(target)


def read_fetch(command: Command, findings: Findings) -> None:
    """curl and wget."""
    is_curl = command.base == "curl"
    parsed = parse_options(command.words, _CURL if is_curl else _WGET)
    names: tuple[str, ...] = ("o", "output", "D", "dump-header", "c", "cookie-jar", "trace", "trace-ascii", "stderr")
    if not is_curl:
        names = ("O", "output-document", "o", "output-file", "a", "append-output", "warc-file", "rejected-log")
    for value in parsed.get(*names):
        findings.write(value)
    for value in parsed.get(*(("K", "config") if is_curl else ("i", "input-file", "e", "execute"))):
        if value.text is None or is_curl:
            findings.tell_unknown(f"{command.base} does what a file of settings says")
    for value in parsed.get("use-askpass"):
        findings.read(value.text or "", (*command.within, command.base))
    operands = [*parsed.operands, *parsed.get("url", "x", "proxy")]
    add_hosts(operands, findings)
    for word in operands:
        if word.text is None:
            findings.more_hosts = True
        elif "://" not in word.text and (match := _BARE.fullmatch(word.text)):
            findings.hosts[match[1]] = None


def read_connection(command: Command, findings: Findings) -> None:
    """nc, telnet, ping and others that get a host as an operand; nc can start a program for it."""
    known = (
        Options("46bCDdFhklNnrStUuvZz", "eIiMmOPpqsTVWwXxc")
        if command.base in _CATS
        else Options("46nvqabBdfrRUVL", "cIiWwstMpQSTmloF")
    )
    parsed = parse_options(command.words, known)
    if command.base in _CATS:
        for value in parsed.get("e", "c"):
            findings.read(value.text or "", (*command.within, command.base))
            if value.text is None:
                findings.tell_unknown(f"{command.base} runs code that is known at run time only")
    operands = [word for word in parsed.operands if word.text is not None]
    if operands and not (parsed.has("l") and command.base in _CATS) and operands[0].text:
        findings.hosts[operands[0].text.rsplit("@", 1)[-1]] = None


def read_socat(command: Command, findings: Findings) -> None:
    for word in command.words:
        if word.text is None:
            findings.tell_unknown("socat runs what is known at run time only")
            continue
        kind, _, rest = word.text.partition(":")
        if kind.upper() in ("EXEC", "SYSTEM", "SHELL"):
            findings.read(rest.split(",", 1)[0], (*command.within, command.base))
        elif (
            kind.upper().startswith(("TCP", "UDP", "OPENSSL", "SSL", "SCTP", "PROXY", "SOCKS"))
            and "LISTEN" not in kind.upper()
        ):
            findings.hosts[rest.split(",", 1)[0].split(":", 1)[0]] = None


def read_client(command: Command, findings: Findings) -> None:
    """Package managers and the like: what stands there as a URL."""
    add_hosts(list(command.words), findings)


_CATS = frozenset(("nc", "ncat", "netcat"))
CLIENTS = frozenset(
    ("pip", "pip3", "uv", "npm", "pnpm", "yarn", "cargo", "go", "gem", "apt", "apt-get", "aria2c", "hg", "svn")
)
CONNECTIONS = _CATS | {"telnet", "ping", "ping6", "traceroute", "ftp", "dig", "nslookup", "host", "nmap", "mosh"}
