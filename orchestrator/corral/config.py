"""The user's settings: one TOML file, checked whole before anything starts.

A mistake names file, line, field and what is allowed there. The environment wins over the file for the three names
that other tools share (CORRAL_MODEL, OPENAI_BASE_URL) or that say where the file is (CORRAL_CONFIG). Every field is
documented in docs/reference/settings.md, which is made from the docstrings here.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import platformdirs
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from corral.errors import ConfigError
from corral.sandbox.spec import GIB, MIB, Limits, WorkspaceMode
from corral.schema.visible import visible

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB)?", re.IGNORECASE)
_UNITS = {"b": 1, "kib": 1 << 10, "mib": MIB, "gib": GIB, "tib": GIB << 10}
_REFERENCE = "docs/reference/settings.md"
_FROM_ENVIRONMENT = {"name": "CORRAL_MODEL", "base_url": "OPENAI_BASE_URL"}


def parse_size(value: object) -> object:
    """Bytes of `4096`, `"4096"`, `"512 MiB"`, `"1.5GiB"`; anything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a size is a number of bytes or a text such as '512 MiB' (B, KiB, MiB, GiB, TiB)")
    return int(float(match[1]) * _UNITS[(match[2] or "B").lower()])


Size = Annotated[int, BeforeValidator(parse_size), Field(ge=MIB, strict=True)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class _Settings(BaseModel):
    # Without use_attribute_docstrings, which would parse this file's source at every start.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class LimitSettings(_Settings):
    """What one box may use. Sizes are bytes, or texts such as "512 MiB"."""

    memory: Size | None = None
    """Memory of the box, without swap. Default: 4 GiB, or half of the host's memory if that is less."""
    pids: Annotated[int, Field(ge=16, le=1 << 22)] = 512
    """Processes and threads."""
    cpus: Annotated[float, Field(gt=0, le=4096)] = 2.0
    """Processors' worth of time."""
    open_files: Annotated[int, Field(ge=64, le=1 << 20)] = 4096
    """Open files of each process."""
    file_size: Size = 1 * GIB
    """Largest file a command may write."""
    workspace_size: Size = 4 * GIB
    """Changes to the workspace, in all."""
    workspace_inodes: Annotated[int, Field(ge=100)] = 200_000
    """Files and directories the changes may have."""
    min_free: Size = 512 * MIB
    """What must stay free on the disk with the changes: no box starts with less, and one that takes more ends."""
    tmp: Size | None = None
    """`/tmp`, which is memory. Default: 512 MiB, or an eighth of `memory` if that is less."""
    home: Size | None = None
    """`/home`, which is memory. Default: 256 MiB, or a sixteenth of `memory` if that is less."""
    shm: Size | None = None
    """`/dev/shm`, which is memory. Default: 64 MiB, or a 32nd of `memory` if that is less."""
    wall_s: Seconds | None = None
    """Seconds the whole box may live. Default: no limit but each command's own."""

    def to_limits(self, *, host_memory: int | None = None) -> Limits:
        """The limits of a box on this host. Raises ConfigError when the memory file systems take over half."""
        host = host_memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = self.memory or min(4 * GIB, host // 2)
        tmp = self.tmp or min(512 * MIB, memory // 8)
        home = self.home or min(256 * MIB, memory // 16)
        shm = self.shm or min(64 * MIB, memory // 32)
        if tmp + home + shm > memory // 2:
            # More, and filling them would make the kernel end the toolbox for want of memory.
            raise ConfigError(
                f"limits.tmp, limits.home and limits.shm are {(tmp + home + shm) >> 20} MiB together, over half of "
                f"limits.memory ({memory >> 20} MiB)",
                hint="make them smaller, or limits.memory larger",
            )
        return Limits(
            memory_bytes=memory,
            pids=self.pids,
            cpus=self.cpus,
            open_files=self.open_files,
            file_bytes=self.file_size,
            workspace_bytes=self.workspace_size,
            workspace_inodes=self.workspace_inodes,
            min_free_bytes=self.min_free,
            tmp_bytes=tmp,
            home_bytes=home,
            shm_bytes=shm,
            wall_s=self.wall_s,
        )


class TimeoutSettings(_Settings):
    """Seconds one tool call may take."""

    shell_s: Annotated[float, Field(gt=0, le=3600)] = 120
    """A shell command that names no time of its own; it may name at most 3600."""
    file_s: Seconds = 5
    """File tools: read, write, edit, patch, move, delete, list."""
    network_s: Seconds = 30
    """Tools that wait for the network."""
    other_s: Seconds = 15
    """Any other tool."""


class ModelSettings(_Settings):
    """The model an agent run uses."""

    name: Annotated[str, Field(min_length=1)] | None = None
    """Name of the model at its endpoint. CORRAL_MODEL wins over it."""
    base_url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    """Address of an OpenAI-compatible endpoint. OPENAI_BASE_URL wins over it."""
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key. The key itself never stands in this file."""


class NetworkSettings(_Settings):
    """What boxes may reach when nothing else is said. Without both, a box has no network at all."""

    profiles: tuple[str, ...] = ()
    """Names of shipped lists: `python`, `node`, `rust`, `go`, `debian`, `git`."""
    allow: tuple[str, ...] = ()
    """Hosts: `HOST` (ports 80 and 443), `HOST:PORT`, `*.HOST:PORT`."""


_Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class SecretSettings(_Settings):
    """One secret under `[secrets.NAME]`: where it is, and where it may go. The box only sees a placeholder."""

    env: _Variable | None = None
    """Name of the variable of corral's own environment that holds it."""
    file: Path | None = None
    """File that holds it, an absolute path."""
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Program with arguments that prints it."""
    hosts: Annotated[tuple[str, ...], Field(min_length=1)]
    """Hosts it may be sent to, exactly; always by TLS."""
    header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = "Authorization"
    """The header of a request in which the placeholder is replaced."""
    variable: _Variable | None = None
    """Variable that holds the placeholder in the box. Default: the secret's name in capitals."""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if sum(source is not None for source in (self.env, self.file, self.command)) != 1:
            raise ValueError("a secret has exactly one source: env, file or command")
        return self


class RedactSettings(_Settings):
    """What is masked by its looks before a model, the record or a screen gets it. Known values are masked always."""

    keys: bool = True
    """Keys, tokens, passwords and private keys of the known kinds."""
    personal: bool = True
    """Phone, card, account and identity numbers."""


Preset = Literal["on-request", "auto-edit", "auto", "never", "yolo", "plan"]


class Settings(_Settings):
    """Everything a user may set, with the defaults."""

    image: Annotated[str, Field(min_length=1)] | None = None
    """Image of the box: any for Linux that the engine has. Default: the one `corral image build` makes."""
    mode: WorkspaceMode = WorkspaceMode.AUTO
    """How the workspace gets into the box. `auto`: `overlay` where the engine proves that it sees the directory, else
    `copy`."""
    runtime: Annotated[str, Field(min_length=1)] = "runc"
    """The engine's runtime for the box, by the name the engine knows it: `runc`, or `runsc` for gVisor. Under gVisor a
    kernel of its own answers the box; docs/how-to/use-gvisor.md says what that gives and what it takes."""
    seccomp: Literal["default", "debug"] = "default"
    """System calls a box may make. `debug` allows ptrace, for debuggers and strace: that much more is open."""
    mask: tuple[str, ...] | None = None
    """Patterns (as in .gitignore) of files whose content the box must not see. Default: the built-in list; `[]` masks
    nothing."""
    data_dir: Path | None = None
    """Where runs are kept, set-up layers, and trees out of images; an absolute path. Default: the user's data
    directory."""
    preset: Preset = "auto"
    """What an agent may do without being asked about."""
    policy: tuple[Path, ...] = ()
    """Files of rules of your own, as absolute paths, on top of the preset. A forbid of theirs always holds; the
    built-in denials hold whatever they permit."""
    limits: LimitSettings = LimitSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    model: ModelSettings = ModelSettings()
    network: NetworkSettings = NetworkSettings()
    redact: RedactSettings = RedactSettings()
    secrets: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")], SecretSettings] = {}

    def runs_dir(self) -> Path:
        """The folder that has one folder per run."""
        return (self.data_dir or platformdirs.user_data_path("corral")) / "runs"

    def layers_dir(self) -> Path:
        """The folder that has one folder per name of a set-up layer."""
        return self.runs_dir().with_name("layers")

    def trees_dir(self) -> Path:
        """The folder that has one folder per directory taken out of an image."""
        return self.runs_dir().with_name("trees")

    def pools_dir(self) -> Path:
        """The folder for what pools of boxes keep ready."""
        return self.runs_dir().with_name("pools")


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The settings file: CORRAL_CONFIG, else config.toml in the user's configuration directory."""
    named = environ.get("CORRAL_CONFIG")
    return Path(named) if named else platformdirs.user_config_path("corral") / "config.toml"


def load_settings(path: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of `path`, or of the user's file, which may be missing. Raises ConfigError."""
    must_exist = path is not None or bool(environ.get("CORRAL_CONFIG"))
    file = path or config_path(environ)
    text = _read_text(file, must_exist=must_exist)
    data = _parse_toml(file, text)
    taken = _take_environment(data, environ)
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        raise _explain(file, text, error, taken) from None
    if settings.data_dir is not None and not settings.data_dir.is_absolute():
        raise _mistake(file, text, ("data_dir",), f"{str(settings.data_dir)!r} is not an absolute path")
    for rules in settings.policy:
        if not rules.is_absolute():
            raise _mistake(file, text, ("policy",), f"{str(rules)!r} is not an absolute path")
    return settings


def _take_environment(data: dict[str, Any], environ: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Puts the environment's values over the file's; returns which setting came from which variable."""
    model = data.setdefault("model", {})
    taken: dict[tuple[str, ...], str] = {
        ("model", field): name for field, name in _FROM_ENVIRONMENT.items() if environ.get(name)
    }
    if isinstance(model, dict):
        model.update({where[1]: environ[name] for where, name in taken.items()})
    return taken


def _read_text(file: Path, *, must_exist: bool) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not must_exist:
            return ""
        raise ConfigError(f"no settings file {str(file)!r}", hint="CORRAL_CONFIG or --config names it") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{file}:{line}: this is not UTF-8", hint="save the file as UTF-8") from None
    except OSError as error:
        raise ConfigError(
            f"cannot read the settings file {str(file)!r}: {error.strerror}", hint="make it a file that you may read"
        ) from None


def _parse_toml(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        # At the end of the document the parser names no line.
        line = int(found[1]) if found else text.count("\n") + 1
        raise ConfigError(
            f"{file}:{line}: not TOML: {str(error).split(' (at ')[0]}", hint='a line is: name = "text", or name = 5'
        ) from None


def _explain(file: Path, text: str, error: ValidationError, taken: Mapping[tuple[str, ...], str]) -> ConfigError:
    """The first mistake in the file's own terms, or the variable's; the others are counted."""
    first, more = error.errors(include_url=False, include_context=True)[0], error.error_count() - 1
    where = tuple(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return _mistake(file, text, where, "there is no such setting", _hint_names(where), more=more)
    problem = str(first["msg"]).removeprefix("Value error, ")
    if where in taken:
        return ConfigError(
            f"{taken[where]}: {first['input']!r}: {problem[:1].lower()}{problem[1:]}",
            hint=f"see {'.'.join(where)} in {_REFERENCE}",
        )
    return _mistake(file, text, where, f"{first['input']!r}: {problem[:1].lower()}{problem[1:]}", more=more)


def _mistake(
    file: Path, text: str, where: tuple[str, ...], problem: str, hint: str | None = None, *, more: int = 0
) -> ConfigError:
    also = f" (and {more} more)" if more else ""
    line = find_line(text, where)
    place = f"{file}:{line}" if line else str(file)
    return ConfigError(
        f"{place}: {'.'.join(map(visible, where))}: {problem}{also}",
        hint=hint or f"{_REFERENCE} lists what is allowed",
    )


def _hint_names(where: tuple[str, ...]) -> str:
    model: type[BaseModel] = Settings
    for part in where[:-1]:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else model
    return f"allowed here: {', '.join(model.model_fields)}"


def find_line(text: str, where: tuple[str, ...]) -> int | None:
    """The line of a TOML text that sets `where`, or the nearest table around it."""
    table: tuple[str, ...] = ()
    best: tuple[int, int] | None = None  # length of the match, line
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]", line):
            name = table = _split_key(header[1])
        elif key := re.match(r"\s*([\w.\"' -]+?)\s*=", line):
            name = (*table, *_split_key(key[1]))
        else:
            continue
        if name == where[: len(name)] and (best is None or len(name) > best[0]):
            best = (len(name), number)
    return best[1] if best else None


def _split_key(key: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in key.split("."))
