"""Servers that sides call, each in a separate process that ends with this one."""

import atexit
import json
import os
import subprocess
import sys
from functools import cache

from .processes import PATH, PeerFailed

__all__ = ["start_model_server", "start_server"]


@cache
def start_server(*command: str) -> str:
    """Where a server listens: started the first time, with this Python.

    It says so itself, in a line of JSON.
    """
    environment = {**os.environ, "PYTHONPATH": PATH}
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, env=environment
    )
    atexit.register(process.kill)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise PeerFailed(f"{' '.join(command)} did not start")
    return str(json.loads(line)["address"])


def start_model_server(*options: str) -> str:
    """The address of an `assay serve-models` with these options."""
    return start_server("-m", "assay", "serve-models", "--port", "0", "--json", *options)
