"""Every attack, by its id. Runs inside a container: nothing but the standard library."""

from __future__ import annotations

from .again import AGAIN
from .attack import Attack
from .daemon import DAEMONS
from .kernel import KERNEL
from .left import LEFT
from .memory import MEMORY
from .network import NETWORK
from .places import PLACES
from .privilege import PRIVILEGE
from .resources import RESOURCES
from .sockets import SOCKETS
from .toolbox import TOOLBOX
from .workspace import WORKSPACE

TABLES = (PRIVILEGE, PLACES, KERNEL, SOCKETS, NETWORK, MEMORY, RESOURCES, TOOLBOX, WORKSPACE, DAEMONS, AGAIN, LEFT)
ATTACKS: dict[str, Attack] = {attack.id: attack for table in TABLES for attack in table.attacks}
assert len(ATTACKS) == sum(len(table.attacks) for table in TABLES), "an id is there twice"
