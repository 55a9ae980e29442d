"""Which names are secret files: gitignore-style patterns, and a quick test on the last component before them.

Matching every path of a large tree against every pattern costs seconds. Nearly all names are settled by a set look-up
and three string tests; only what passes them is matched in full.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pathspec

from corral.errors import ConfigError

SNIFFED = (
    "*.pem",
    "*.key",
    "*.asc",
    "**/.ssh/id_*",
    "*_rsa",
    "*_ed25519",
    "*service-account*.json",
    "*service_account*.json",
    "*credentials*.json",
)
"""Secret only when the content says so: certificates and public keys share these names."""

BUILT_IN = (
    ".env",
    ".env.*",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    "!.env.dist",
    "!.env.defaults",
    "!.env.schema",
    ".envrc",
    ".npmrc",
    ".pypirc",
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".htpasswd",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".terraformrc",
    "credentials.tfrc.json",
    ".s3cfg",
    ".boto",
    ".databrickscfg",
    ".dockercfg",
    "**/.docker/config.json",
    "**/.kube/config",
    "**/.aws/credentials",
    "**/.azure/accessTokens.json",
    "**/.azure/msal_token_cache.json",
    "application_default_credentials.json",
    "**/.config/gh/hosts.yml",
    "**/.config/hub",
    "**/.cargo/credentials",
    "**/.cargo/credentials.toml",
    "**/.gem/credentials",
    "**/.composer/auth.json",
    "**/config/master.key",
    "**/config/credentials/*.key",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "*.p12",
    "*.pfx",
    "*.ppk",
    "*.kdbx",
)
"""Secret whatever is in them. Names and places are those that the programs of the files document."""

_SECRET_CONTENT = re.compile(rb"PRIVATE KEY|\"private_key\"\s*:|\"client_secret\"\s*:|\"refresh_token\"\s*:")
_WILD = re.compile(r"[*?\[\\]")
_LETTERS = 2
_TAIL = re.compile(r".*[*?\]\\]", re.DOTALL)


@dataclass(frozen=True)
class MaskPatterns:
    """A list of patterns, ready for use. Later patterns win, `!` takes back."""

    lines: tuple[str, ...]
    spec: pathspec.GitIgnoreSpec
    exact: frozenset[str] = field(default_factory=frozenset)
    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    others: re.Pattern[str] | None = None
    tails: tuple[str, ...] = ()  # what the names that `others` takes end with
    letters: tuple[frozenset[str], frozenset[str]] | None = None
    """The first two of every prefix, the last two of every suffix and tail; None where one has fewer, as `*~`."""

    @classmethod
    def compile(cls, lines: tuple[str, ...]) -> MaskPatterns:
        """Raises ConfigError for a pattern that is none."""
        try:
            spec = pathspec.GitIgnoreSpec.from_lines(lines)
        except ValueError as error:
            raise ConfigError(
                f"mask pattern cannot be used: {error}", hint="patterns are those of .gitignore"
            ) from None
        exact: set[str] = set()
        prefixes: set[str] = set()
        suffixes: set[str] = set()
        others: set[str] = set()
        tails: set[str] = set()
        for last in filter(None, map(_last_component, lines)):
            if not _WILD.search(last):
                exact.add(last)
            elif last[0] == "*" and not _WILD.search(last[1:]):
                suffixes.add(last[1:])
            elif last[-1] == "*" and not _WILD.search(last[:-1]):
                prefixes.add(last[:-1])
            else:
                others.add(_loosen(last))
                tails.add(_TAIL.sub("", last))
        joined = re.compile("|".join(sorted(others)), re.DOTALL) if others else None
        letters = frozenset(p[:_LETTERS] for p in prefixes), frozenset(s[-_LETTERS:] for s in suffixes | tails)
        is_quick = all(len(few) == _LETTERS for few in letters[0] | letters[1])
        return cls(
            lines,
            spec,
            frozenset(exact),
            tuple(prefixes),
            tuple(suffixes),
            joined,
            tuple(tails),
            letters if is_quick else None,
        )

    def pick(self, names: list[str]) -> list[str]:
        """Of the names in one directory those that a matching path can end with. This runs for every file there is."""
        near = names
        if self.letters is not None:
            (heads, tails), n = self.letters, _LETTERS
            near = [name for name in names if name[-n:] in tails or name[:n] in heads]
        return [*self.exact.intersection(names), *filter(self._fits, near)]

    def _fits(self, name: str) -> bool:
        if name.endswith(self.suffixes) or name.startswith(self.prefixes):
            return True
        return self.others is not None and name.endswith(self.tails) and self.others.fullmatch(name) is not None

    def find(self, path: str, *, is_directory: bool = False) -> str | None:
        """The pattern that makes `path` a secret, or None."""
        # The patterns' `*` and `**` stop at a line's end: a folder with a newline in its name would hide its secrets.
        plain = path.replace("\n", "\1")
        result = self.spec.check_file(plain + "/" if is_directory else plain)
        return self.lines[result.index] if result.include and result.index is not None else None

    def literal_paths(self) -> tuple[str, ...]:
        """Patterns that name one place without a wildcard: they are looked at directly, however large the tree is."""
        plain = (line.strip().strip("/") for line in self.lines if "/" in line.strip().rstrip("/"))
        return tuple(path for path in plain if path and path[0] not in "!#" and not _WILD.search(path))


def is_secret_content(head: bytes) -> bool:
    return _SECRET_CONTENT.search(head) is not None


def _last_component(line: str) -> str | None:
    """What the last component of a matching path looks like; None for a comment or an exception."""
    text = line.strip()
    if not text or text[0] in "#!":
        return None
    while text.endswith(("/", "/**")):
        text = text.rstrip("/").removesuffix("/**")
    return text.rsplit("/", 1)[-1] or None


def _loosen(component: str) -> str:
    """A regular expression that matches at least what the glob matches."""
    loose = re.sub(r"\\.|\[[^\]]*\]|[*?]", lambda m: ".*" if m[0] == "*" else "\0", component)
    return "".join(
        "." if part == "\0" else ".*" if part == ".*" else re.escape(part) for part in re.split(r"(\0|\.\*)", loose)
    )
