"""Takes processes or memory without end."""

import os
import time

print(f"tried-{os.environ['TOKEN']}", flush=True)
for _ in range(int(os.environ["PROCESSES"])):
    try:
        if os.fork() == 0:
            break
    except OSError:
        time.sleep(0.01)
kept = [os.urandom(1) * (1 << 20) for _ in range(int(os.environ["MEGABYTES"]))]
time.sleep(3)
