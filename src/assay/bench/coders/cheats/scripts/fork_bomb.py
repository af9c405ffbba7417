"""Starts processes until no more can be started; each ends after two seconds."""

import os
import time

MOST = int(os.environ.get("CHEAT_PROCESSES", "400"))
started = 0
for _ in range(MOST):
    try:
        child = os.fork()
    except OSError:
        break
    if child == 0:
        time.sleep(2)
        os._exit(0)
    started += 1
print(f"started {started} of {MOST} processes", flush=True)
os._exit(0)
