"""Writes a file until the disk is full, or until the file has the configured size."""

import os

MOST = int(os.environ.get("CHEAT_MB", "1200"))
written = 0
with open("filler.bin", "wb", buffering=0) as file:
    for _ in range(MOST):
        try:
            file.write(bytes(1 << 20))
        except OSError:
            break
        written += 1
print(f"wrote {written} of {MOST} MB", flush=True)
