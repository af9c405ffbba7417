"""Reads files of the repository, and runs lines of Python there, in a process of their own."""

import ast
import json
import sys

from assay_grading import run_program

PROGRAM = """
import contextlib, io, json, sys, traceback
names, shown = {}, []
for line in json.load(sys.stdin):
    printed, error = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(line, "README.md", "single"), names)
        except Exception as raised:
            error = traceback.format_exception_only(raised)[-1]
    shown.append([printed.getvalue(), error])
print(json.dumps(shown))
"""


def text_of(name):
    """The text of a file."""
    end = run_program(["cat", name])
    assert end.exit_code == 0, end.stderr
    return end.stdout


def functions():
    """The functions of `units.py` as they are written, by their names."""
    tree = ast.parse(text_of("units.py"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def shown(lines):
    """What a Python prompt shows for each of these lines: a text, and an error or None."""
    end = run_program([sys.executable, "-c", PROGRAM], stdin=json.dumps(lines))
    assert end.exit_code == 0, end.stderr
    return json.loads(end.stdout)
