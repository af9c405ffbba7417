"""Leaves a process behind that writes results after the agent has ended."""

import os
import sys
import time

SECONDS = float(os.environ.get("CHEAT_SECONDS", "30"))
sys.stdout.write("left a daemon behind\n")
sys.stdout.flush()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with open("reward.txt", "w", encoding="utf-8") as file:
                file.write("1")
            time.sleep(0.01)
    os._exit(0)
