"""What this process has used of the machine. Standard library only."""

import resource
import sys
from pathlib import Path

__all__ = ["cpu_seconds", "memory_bytes", "peak_bytes"]


def cpu_seconds() -> float:
    """User and system time of all threads so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory_bytes() -> int:
    """Memory that is resident at this moment; where nobody can tell, the most so far."""
    return _read_status("VmRSS") or peak_bytes()


def peak_bytes() -> int:
    """The most memory that was resident at once."""
    # On Linux the figure of getrusage can be that of the process that started this one.
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _read_status("VmHWM") or (size if sys.platform == "darwin" else 1024 * size)


def _read_status(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = next((line.split() for line in lines if line.startswith(f"{name}:")), None)
    return None if found is None else 1024 * int(found[1])
