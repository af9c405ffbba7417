"""Places for workers: processes of this machine, or the nodes of a Ray cluster."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Place", "descendants", "is_alive", "node_settings", "two_nodes"]

_STORE_BYTES = 80 << 20


class Place(NamedTuple):
    """A place for workers."""

    settings: dict[str, Any]
    """Settings of a run in this place."""
    cluster: Any = None

    @property
    def options(self) -> list[str]:
        """Command-line options of a run in this place."""
        return [
            part
            for name, value in self.settings.items()
            for part in (f"--{name.replace('_', '-')}", value)
        ]

    def workers(self, driver: int | None = None) -> list[int]:
        """Return the processes of `assay.runs.workers.worker` of a driver, by default this one.

        Workers of a cluster descend from this process, which has started its nodes.
        """
        above = os.getpid() if driver is None or self.cluster is not None else driver
        return [
            pid for pid in descendants(above) if b"assay.runs.workers.worker" in _command(pid)
        ]


def node_settings() -> dict[str, int]:
    """Return the resources of a cluster node."""
    return {"num_cpus": 1, "object_store_memory": _STORE_BYTES}


@contextmanager
def two_nodes() -> Iterator[Any]:
    """A Ray cluster of two nodes on this machine, with a CPU each."""
    # Read when Ray is imported, by its nodes too.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    from ray.cluster_utils import Cluster

    # A node may be started with a key in its environment; no worker may see it.
    os.environ["OPENAI_API_KEY"] = "sk-of-the-node"
    try:
        cluster = Cluster(
            initialize_head=True,
            head_node_args={**node_settings(), "include_dashboard": False},
        )
        cluster.add_node(**node_settings())
    finally:
        del os.environ["OPENAI_API_KEY"]
    try:
        yield cluster
    finally:
        cluster.shutdown()


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, directly or indirectly."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        try:
            parent = (entry / "stat").read_text("utf-8").rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def is_alive(pid: int) -> bool:
    """Return whether a process is running, not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
