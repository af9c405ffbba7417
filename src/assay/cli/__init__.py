"""The command line: each file parses one group of commands, calls, and prints.

Command files import what is heavy inside the function that needs it, so that
`assay --help` answers at once.
"""

from assay.cli.program import app, main

__all__ = ["app", "main"]
