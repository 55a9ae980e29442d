"""Takes memory until somebody stops it."""

import mmap

BLOCK = 16 << 20
GIVE_UP_BYTES = 4 << 30
kept = []
while len(kept) * BLOCK < GIVE_UP_BYTES:
    piece = mmap.mmap(-1, BLOCK)
    piece.write(b"\1" * BLOCK)
    kept.append(piece)
print(f"took {len(kept) * BLOCK} bytes and was not stopped")
