"""Makes the runtime that images without our own Python are given: run once per version, in the sandbox image, as root.

It is never part of a box: the volume it fills is.
"""
