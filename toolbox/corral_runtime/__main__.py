"""What `/usr/bin/python3 -I -S /opt/corral/toolbox/corral_runtime VOLUME` runs."""

import sys

_ROOT = __file__.rpartition("/corral_runtime/")[0]
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from corral_runtime.fill import main  # noqa: E402

main(sys.argv[1])
