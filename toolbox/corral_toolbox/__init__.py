"""The trusted server inside the box: the container's first process. Runs `-I -S`, standard library only.

Start-up is on the path to the first result, so its first process imports neither json, enum, dataclasses nor asyncio.
"""

__version__ = "0.1.0"
