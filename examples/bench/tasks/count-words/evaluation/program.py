"""Runs the program as a user would."""

import os
import subprocess
import sys


def words(*arguments, stdin=b""):
    """How the program ended: its exit code, output and errors."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "words.py", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=20,
        env=environment,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def text_file(folder, content, name="text.txt"):
    path = folder / name
    path.write_bytes(content)
    return path
