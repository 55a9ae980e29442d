"""Whether a command line only reads: every program on a list, and with options that are on it, too.

Programs that can write, run others or take an output file are judged by their options; an option that is not known here
is not safe. git is left out on purpose: the settings of a repository that nobody trusts run programs at `git status`.
"""

from __future__ import annotations

from collections.abc import Callable

from corral.policy.shell.model import CommandLine, Program, Word
from corral.policy.shell.program.option import Options, Parsed, parse_options

# These only read, whatever their options.
SAFE_PROGRAMS: frozenset[str] = frozenset().union(
    (":", "base32", "base64", "basename", "cat", "cd", "cksum", "cmp", "comm", "cut", "df", "dirname", "du", "echo"),
    (
        "egrep",
        "expand",
        "false",
        "fgrep",
        "fold",
        "free",
        "grep",
        "head",
        "hexdump",
        "id",
        "join",
        "jq",
        "ls",
        "md5sum",
    ),
    ("nl", "nproc", "od", "paste", "printenv", "pwd", "readlink", "realpath", "rev", "seq", "sha1sum", "sha256sum"),
    ("sha512sum", "sleep", "stat", "strings", "tac", "tail", "test", "tr", "true", "type", "uname", "wc", "which"),
    ("whoami",),
)
# They run what stands behind them, and that is judged by itself.
_WRAPPERS = frozenset(("command", "nice", "timeout", "xargs"))

_FIND = frozenset(
    (
        *("-a", "-amin", "-and", "-anewer", "-atime", "-cmin", "-cnewer", "-ctime", "-daystart", "-depth", "-empty"),
        *("-executable", "-false", "-follow", "-group", "-H", "-iname", "-inum", "-ipath", "-iregex", "-L", "-links"),
        *(
            "-ls",
            "-maxdepth",
            "-mindepth",
            "-mmin",
            "-mount",
            "-mtime",
            "-name",
            "-newer",
            "-nogroup",
            "-not",
            "-nouser",
        ),
        *(
            "-o",
            "-or",
            "-P",
            "-path",
            "-perm",
            "-print",
            "-print0",
            "-printf",
            "-prune",
            "-quit",
            "-readable",
            "-regex",
        ),
        *("-regextype", "-samefile", "-size", "-true", "-type", "-uid", "-user", "-wholename", "-writable", "-xdev"),
    )
)
_SORT = Options(
    "bdfghiMnRrVcCmsuz",
    "kt",
    long_flags=("reverse", "unique", "numeric-sort", "stable", "human-numeric-sort", "version-sort", "ignore-case"),
    long_values=("key", "field-separator"),
    anywhere=True,
)
_UNIQ = Options("cdDiuz", "fsw", long_flags=("count", "repeated", "unique", "ignore-case"), anywhere=True)
_SED = Options(
    "nErsuz",
    "e",
    long_flags=("quiet", "silent", "regexp-extended", "null-data", "sandbox", "posix"),
    long_values=("expression",),
    anywhere=True,
)
_AWK = Options("", "Fv", long_values=("field-separator", "assign"))
_DATE = Options(
    "uR", "dr", attached="I", long_flags=("utc", "rfc-email"), long_values=("date", "reference"), anywhere=True
)
_DIFF = Options(
    "abBcdEeiNnpqrsTtuwyZ",
    "CUWLx",
    long_flags=("brief", "recursive", "unified", "side-by-side", "new-file", "ignore-all-space", "no-index"),
    long_attached=("color", "exclude", "label"),
    anywhere=True,
)
_FILE = Options(
    "bhiLkNnprsz0", "Fe", long_flags=("brief", "mime", "mime-type", "mime-encoding", "dereference"), anywhere=True
)
_TREE = Options("adfhilpsugDFNqQrtvUCAXJ", "LPI", long_flags=("dirsfirst", "noreport", "du"), anywhere=True)
_XXD = Options("abeEipu", "cgls", anywhere=True)
_RG = Options(
    "acFHhilLnNopPqsSuUvVwx0",
    "eABCfgjmMtTrE",
    long_flags=(
        *("hidden", "no-ignore", "files", "files-with-matches", "count", "line-number", "no-heading", "fixed-strings"),
        *("ignore-case", "json", "multiline", "only-matching", "stats", "word-regexp", "no-filename", "follow"),
    ),
    long_values=("glob", "iglob", "type", "type-not", "max-count", "max-depth", "sort", "regexp", "context"),
    long_attached=("color", "colors"),
    anywhere=True,
)


def _known(options: Options, *, operands: int | None = None) -> Callable[[Program], bool]:
    def judge(program: Program) -> bool:
        if None in program.arguments:  # it could be any option
            return False
        parsed = _parse(program, options)
        return parsed.is_known and (operands is None or len(parsed.operands) <= operands)

    return judge


def _parse(program: Program, options: Options) -> Parsed:
    return parse_options([Word(text) for text in program.arguments], options)


def _reads_find(program: Program) -> bool:
    return all(
        text is not None and (text[:1] != "-" or text in _FIND or text[1:].isdigit()) for text in program.arguments
    )


def _reads_date(program: Program) -> bool:
    # Without `+` an operand sets the clock.
    return _known(_DATE)(program) and all((word.text or "")[:1] == "+" for word in _parse(program, _DATE).operands)


def _reads_printf(program: Program) -> bool:
    return program.arguments[:1] not in ((None,), ("-v",))


_JUDGES: dict[str, Callable[[Program], bool]] = {
    "awk": _known(_AWK),
    "date": _reads_date,
    "diff": _known(_DIFF),
    "file": _known(_FILE),
    "find": _reads_find,
    "printf": _reads_printf,
    "rg": _known(_RG),
    "sed": _known(_SED),
    "sort": _known(_SORT),
    "tree": _known(_TREE),
    "uniq": _known(_UNIQ, operands=1),
    "xxd": _known(_XXD, operands=1),
}


def is_safe(line: CommandLine) -> bool:
    """Whether it can only read, in the box and nowhere else. What is not understood is not safe."""
    if line.dynamic or line.has_error or not line.programs:
        return False
    if line.writes or line.more_writes or line.hosts or line.more_hosts or line.scripts or line.code or line.variables:
        return False
    return all(_only_reads(program) for program in line.programs)


def _only_reads(program: Program) -> bool:
    # SECURITY: a name with a slash is a file of somebody's, whatever it is called; test_other_programs_are_not_safe
    if program.name in SAFE_PROGRAMS or program.name in _WRAPPERS:
        return True
    judge = _JUDGES.get(program.name)
    return judge is not None and judge(program)
