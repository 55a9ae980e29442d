"""Fills the workspace, which is the host's disk."""

import time

BLOCK = b"\1" * (1 << 20)
GIVE_UP_BYTES = 2 << 30
written = count = 0
while written < GIVE_UP_BYTES:
    count += 1
    try:
        with open(f"flood-{count}", "wb", buffering=0) as file:
            while written < GIVE_UP_BYTES:
                written += file.write(BLOCK)
                time.sleep(0.004)  # slow enough that what is written past a limit stays small
    except OSError as error:
        print(f"file {count} ended: {error}", flush=True)
        if count > 1000:
            break
print(f"wrote {written} bytes and was not stopped")
