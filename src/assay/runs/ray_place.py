"""What runs on a node of a Ray cluster: it holds the place of a worker, and its process.

The worker itself is the same program as on one machine. Its environment is that of the node,
without the variables that hold keys; what it sends goes to the driver over a connection that it
opens and that a secret made for it alone lets in. It ends with this process and its driver.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from assay._version import __version__
from assay.errors import WorkerLost

from .worker_command import program

__all__ = ["SECRET_BYTES", "Origin", "PlaceOrder", "hold_worker", "this_origin"]

SECRET_BYTES: Final = 32
_CONNECT_S: Final = 20.0
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""After how many seconds of silence, how often and how many times it is asked for a sign."""


class Origin(NamedTuple):
    """A Python on a machine."""

    machine: str
    python: str


def this_origin() -> Origin:
    """The Python that this process is."""
    return Origin(socket.gethostname(), sys.executable)


class PlaceOrder(NamedTuple):
    """What a node has to know to start a worker."""

    driver: tuple[str, int]
    """Where the driver listens."""
    secret: bytes
    """Lets this one worker in."""
    version: str
    """The assay of the driver."""
    origin: Origin
    """The Python of the driver."""
    path: tuple[str, ...]
    """Where the driver finds modules."""
    folder: str
    """Where the driver works."""
    withheld: frozenset[str]
    """Variables that the worker does not get, by name."""


def hold_worker(order: PlaceOrder) -> int:
    """Run a worker to its end; returns the status of its process."""
    if order.version != __version__:
        raise WorkerLost(
            f"node {socket.gethostname()!r} has assay {__version__}, the driver has "
            f"{order.version}; install the same version on every node"
        )
    with _connected(order) as connection:
        is_same = order.origin == this_origin()
        process = subprocess.Popen(
            program(
                [*order.path] if is_same else [*filter(os.path.isdir, order.path)],
                connection.fileno(),
                parent=os.getpid(),
                own_path=not is_same,
            ),
            stdin=subprocess.DEVNULL,
            pass_fds=(connection.fileno(),),
            env={
                name: value for name, value in os.environ.items() if name not in order.withheld
            },
            cwd=order.folder if Path(order.folder).is_dir() else None,
            process_group=0,
        )
    return process.wait()


def _connected(order: PlaceOrder) -> socket.socket:
    try:
        connection = socket.create_connection(order.driver, timeout=_CONNECT_S)
    except OSError as error:
        host, port = order.driver
        raise WorkerLost(
            f"node {socket.gethostname()!r} cannot reach the driver at {host}:{port}: {error}; "
            "let the nodes of the cluster connect to the machine that runs assay"
        ) from None
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    connection.sendall(order.secret)
    return connection
