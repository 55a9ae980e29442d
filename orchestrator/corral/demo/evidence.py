"""What is known after the hostile repository has run: facts of the trusted side, and what the probes report.

A report is the word of a program in the box. Ours are honest, but they are read like any other claim: bounded, typed,
and where a fact of our own says otherwise, the fact counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corral.agent.run import Ending
from corral.demo.bait import Bait
from corral.errors import CorralError
from corral.sandbox.spec import Limits
from corral.schema.events import Event
from corral.schema.patch import Patch
from corral_protocol.message import ExecResult

_MARK = b"hostile-report "
_MAX_LINE = 64 << 10
_MAX_OUTPUT = 4 << 20


class Report(BaseModel):
    """One probe's result. Which fields are there depends on the attempt."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    attempt: str
    done: tuple[str, ...] | None = None
    reached: tuple[str, ...] | None = None
    read: tuple[str, ...] | None = None
    refused: dict[str, str] = Field(default_factory=dict)
    interfaces: tuple[str, ...] = ()
    variables: tuple[str, ...] | None = None
    looked: int = 0
    there: bool = False
    written: dict[str, int] = Field(default_factory=dict)
    ended: dict[str, str] = Field(default_factory=dict)
    sent: bool = False
    escapes: int = 0
    effective: str = Field("", alias="CapEff")
    bounding: str = Field("", alias="CapBnd")
    no_new_privileges: str = Field("", alias="NoNewPrivs")
    filtered: str = Field("", alias="Seccomp")


def parse_reports(raw: bytes) -> dict[str, Report]:
    """The reports in an output, by attempt. A line that is none is passed over; the first of an attempt counts."""
    reports: dict[str, Report] = {}
    for line in raw[:_MAX_OUTPUT].split(b"\n"):
        start = line.find(_MARK)
        if start < 0 or len(line) > _MAX_LINE:
            continue
        try:
            report = Report.model_validate_json(line[start + len(_MARK) :])
        except ValidationError:
            continue
        reports.setdefault(report.attempt, report)
    return reports


@dataclass(frozen=True)
class BoxEnd:
    """How a box of its own ended: the command's result, or the error that took the box."""

    result: ExecResult | None
    error: CorralError | None
    kept_bytes: int = 0  # of changes, on the host's disk


@dataclass
class Evidence:
    """Everything verdicts are made from."""

    bait: Bait
    limits: Limits
    ending: Ending
    run_dir: Path
    patch: Patch | None
    patch_bytes: bytes
    reports: dict[str, Report] = field(default_factory=dict)
    haystack: bytes = b""  # all that came out of any box: outputs, records, the patch
    lies_raw: bytes = b""
    lies_rendered: str = ""  # as a terminal would get it
    shown: tuple[str, ...] = ()  # what the model was told of its calls, in order
    proposed_calls: int = 0
    events: list[Event] = field(default_factory=list)
    refusal: str = ""  # why the patch could not be applied unattended; "" when it was
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    bomb: BoxEnd = field(default_factory=lambda: BoxEnd(None, None))
    hog: BoxEnd = field(default_factory=lambda: BoxEnd(None, None))
    flood: BoxEnd = field(default_factory=lambda: BoxEnd(None, None))
    leftovers: tuple[str, ...] = ()
    broken_records: tuple[str, ...] = ()
    record_events: int = 0

    @property
    def changed(self) -> tuple[str, ...]:
        """What is different in the original now."""
        names = self.before.keys() | self.after.keys()
        return tuple(sorted(name for name in names if self.before.get(name) != self.after.get(name)))
