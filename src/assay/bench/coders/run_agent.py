"""Script for a sandbox, with only the standard library: runs a coding agent in a Python file.

    python3 run_agent.py Class FOLDER < instructions

The agent's file is next to this one, as agent.py. The class is created without arguments; its
`work(instructions, workspace)` is called, and the return value is printed.
"""

import asyncio
import importlib
import inspect
import os
import sys


def main(name: str, workspace: str) -> None:
    """Run the agent in a folder."""
    agent = getattr(importlib.import_module("agent"), name)()
    os.chdir(workspace)
    result = agent.work(sys.stdin.read(), workspace)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    if result is not None:
        print(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
