"""Description of the machine, for the lines above the table."""

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from assay.core.provenance import collect_provenance

from .processes import INSPECT_PYTHON, ORACLES_PYTHON, PEERS_PYTHON

__all__ = ["Machine", "load_average", "this_machine"]

_ASK_VERSIONS = (
    "import json, sys; from importlib.metadata import version; "
    "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
)


@dataclass(frozen=True)
class Machine:
    """The machine, and the versions of both sides."""

    made_by: str
    """assay, its commit and its platform."""
    commit: str | None
    dirty: bool
    peers: dict[str, str]
    """Versions of the peers whose environment is installed."""
    cpu: str
    cores: int
    system: str

    def lines(self) -> list[str]:
        """Everything as text."""
        peers = ", ".join(f"{name} {number}" for name, number in self.peers.items())
        return [
            self.made_by,
            f"peers: {peers}",
            f"{self.cpu}, {self.cores} cores, {self.system}",
        ]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def this_machine() -> Machine:
    """Describe this machine and the versions of the peers."""
    own = collect_provenance()
    peers = {name: version(name) for name in ("crafter", "opensimplex", "pillow")}
    return Machine(
        made_by=str(own),
        commit=own.commit,
        dirty=own.dirty,
        peers=peers
        | _read_peer_versions(PEERS_PYTHON, "craftax", "jax", "jaxlib")
        | _read_peer_versions(INSPECT_PYTHON, "inspect-ai")
        | _read_peer_versions(ORACLES_PYTHON, "rliable"),
        cpu=_read_cpu_name(),
        cores=os.cpu_count() or 1,
        system=platform.platform(terse=True),
    )


def load_average() -> str:
    """The load of the last 1, 5 and 15 minutes."""
    try:
        return " ".join(f"{load:.2f}" for load in os.getloadavg())
    except OSError:
        return "unknown"


def _read_cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _read_peer_versions(python: Path, *names: str) -> dict[str, str]:
    try:
        done = subprocess.run(
            [str(python), "-c", _ASK_VERSIONS, *names],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        answer: dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return answer
