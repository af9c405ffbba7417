"""Runs in a sandbox, with nothing but the standard library: a coding agent in a Python file.

    python3 run_agent.py Class FOLDER < instructions

The file stands beside this one, as agent.py. Makes the class without arguments, calls its
`work(instructions, workspace)`, and prints what that returns.
"""

import asyncio
import importlib
import inspect
import os
import sys


def main(name: str, workspace: str) -> None:
    """Let the agent work in a folder."""
    agent = getattr(importlib.import_module("agent"), name)()
    os.chdir(workspace)
    result = agent.work(sys.stdin.read(), workspace)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    if result is not None:
        print(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
