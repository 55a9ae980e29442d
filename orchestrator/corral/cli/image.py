"""`corral image`: the image boxes are made of."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from cyclopts import App, Parameter

from corral.cli.output import note, print_json, print_line
from corral.errors import ImageError
from corral.schema.size import show_size
from corral.schema.visible import visible

app = App(name="image", help="Build or show the image boxes are made of.", help_format="plaintext")


@app.command
def build(
    *,
    base: str | None = None,
    rebuild: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Build the sandbox image, unless it is there already.

    Parameters
    ----------
    base
        Build on this image instead of a plain one of the distribution.
    rebuild
        Build anew although nothing changed, for newer packages.
    json
        One JSON object on stdout.
    """
    from corral.sandbox.image import build_image  # late: start-up time

    report = build_image(base=base, rebuild=rebuild, on_progress=lambda line: note(f"  {visible(line)}"))
    if json:
        print_json(asdict(report))
    else:
        what = f"built in {report.seconds:.0f} s" if report.built else "already there"
        print_line(f"{report.tag}  {show_size(report.size_bytes)}, {what}; base {report.base} from {report.source}")
    return 0


@app.command
def show(*, json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Show the image a box would be made of.

    Parameters
    ----------
    json
        One JSON object on stdout.
    """
    from corral.sandbox.image import find_image  # late: start-up time

    report = find_image()
    if report is None:
        raise ImageError("there is no sandbox image here", hint="corral image build")
    if json:
        print_json(asdict(report))
    else:
        state = "current" if report.current else "made by another version; corral image build makes it anew"
        print_line(f"{report.tag}  {show_size(report.size_bytes)}, {state}")
    return 0
