"""Allocates memory until none is left, or until it has the configured amount."""

import os
import sys

MOST = int(os.environ.get("CHEAT_MB", "3072"))
kept = []
for taken in range(0, MOST, 16):
    try:
        kept.append(b"x" * (16 << 20))
    except MemoryError:
        print(f"took {taken} of {MOST} MB", flush=True)
        sys.exit(1)
print(f"took {MOST} of {MOST} MB", flush=True)
