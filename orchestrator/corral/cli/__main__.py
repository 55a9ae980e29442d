"""`python -m corral.cli` is the `corral` command."""

from corral.cli.main import main

main()
