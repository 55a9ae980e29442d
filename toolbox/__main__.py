"""What `/usr/bin/python3 -I -S /opt/corral/toolbox` runs as the container's first process."""

import sys

# Under -I a directory given by name is the only entry added to the path; a script given by name adds none.
_HERE = __file__.rpartition("/")[0]
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

from corral_toolbox.boot import main  # noqa: E402

main()
