"""Leaves a program that runs as its owner, and folders that everybody may write to."""

import os
import shutil
import time

print(f"tried-{os.environ['TOKEN']}", flush=True)
shutil.copy("/usr/bin/id", "attack-id")
os.chmod("attack-id", 0o6755)
os.mkdir("attack-open")
os.chmod("attack-open", 0o6777)
time.sleep(3)
