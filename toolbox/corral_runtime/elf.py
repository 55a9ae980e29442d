"""The two facts about programs that a copy of them needs: who loads them, and what the loader itself looks for.

Both layouts that corral runs on (x86-64, arm64) are 64-bit little-endian ELF, so nothing here depends on the machine.
"""

import struct

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADERS_AT, _HEADER_SIZE_AT = 32, 54
_PT_INTERP = 3
_PRELOAD = b"/etc/ld.so.preload\0"
_NOWHERE = b"/opt/corral/none/0\0"
"""Of the same length, in the read-only volume, where nothing is."""


class NotOurs(Exception):
    """A program that cannot be taken along."""


def read_interpreter(program: bytes) -> str:
    """The path of the loader that a dynamic program names. Raises NotOurs."""
    if not program.startswith(_MAGIC):
        raise NotOurs("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", program, _HEADERS_AT)
    size, count = struct.unpack_from("<HH", program, _HEADER_SIZE_AT)
    for place in range(table, table + size * count, size):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", program, place)
        if kind == _PT_INTERP:
            return program[offset : offset + length].rstrip(b"\0").decode("ascii")
    raise NotOurs("a static program: it names no loader")


def unhook_preload(loader: bytes) -> bytes:
    """The loader, deaf to the list of libraries that an image wants in every process. Raises NotOurs."""
    # SECURITY: /etc/ld.so.preload of the image would be loaded into the toolbox, which is root there
    # (test_an_images_preload_list_does_not_reach_the_toolbox).
    if loader.count(_PRELOAD) != 1:
        raise NotOurs("this loader does not name /etc/ld.so.preload where it should")
    return loader.replace(_PRELOAD, _NOWHERE)
