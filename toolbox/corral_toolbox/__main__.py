"""`python3 -m corral_toolbox`: the same as the image's entry, from an installed package."""

from corral_toolbox.boot import main

main()
