"""`python -m corral.cli` is the `corral` command."""

from corral.cli.start import main

main()
