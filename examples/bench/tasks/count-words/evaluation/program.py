"""Runs the program as a user would."""

import sys

from assay_grading import run_program


def words(*arguments, stdin=b""):
    """How the program ended: its exit code, output and errors."""
    end = run_program([sys.executable, "words.py", *map(str, arguments)], stdin=stdin)
    return end.exit_code, end.stdout, end.stderr


def text_file(folder, content, name="text.txt"):
    path = folder / name
    path.write_bytes(content)
    return path
