"""How many files and connections this process may have open."""

import os
import resource
from contextlib import suppress
from typing import Final

__all__ = ["connections_allowed"]

_ENOUGH: Final = 65_536
_OFTEN_ALLOWED: Final = 10_240
"""What macOS allows at most, whatever it says the limit is."""
_SPARE: Final = 64
"""For files that are opened for a moment, pipes and sockets of other things."""


def connections_allowed() -> int:
    """Connections that there is room for, with the limit raised as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (_ENOUGH, _OFTEN_ALLOWED):
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and most > soft:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                soft = most
    if soft == resource.RLIM_INFINITY:
        return _ENOUGH
    return max(1, soft - _open_now() - min(_SPARE, soft // 4))


def _open_now() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return len(os.listdir(folder))
    return _SPARE
