"""`corral layers`: set-up layers, kept by `corral exec --keep`, used by `--from`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from cyclopts import App, Parameter

from corral.cli.output import note, print_json, print_line
from corral.errors import ConfigError
from corral.schema.visible import visible

app = App(name="layers", help="List the set-up layers kept here, or remove them.", help_format="plaintext")


@app.default
def show(*, json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """List the set-up layers kept here.

    Parameters
    ----------
    json
        JSON Lines on stdout.
    """
    from corral.config import load_settings  # late: start-up time
    from corral.store.layer import list_layers

    layers = list_layers(load_settings().layers_dir())
    if not layers and not json:
        print_line("no layers are kept here")
    for layer in layers:
        if json:
            print_json({"layer": layer.name, **asdict(layer.facts)})
        else:
            facts = layer.facts
            print_line(f"{layer.name}  {visible(facts.command)}  {visible(facts.workspace)}  {visible(facts.image)}")
    return 0


@app.command
def rm(*names: str) -> int:
    """Remove layers. One that a box is using stays until it is named again.

    Parameters
    ----------
    names
        Names of layers.
    """
    from corral.config import load_settings  # late: start-up time
    from corral.store.layer import remove_layer

    if not names:
        raise ConfigError("no layer is named", hint="corral layers lists them")
    root, left = load_settings().layers_dir(), 0
    for name in names:
        if remove_layer(root, name):
            print_line(f"removed {name}")
        else:
            left += 1
            note(f"{name} is in use by a box")
    return int(bool(left))
