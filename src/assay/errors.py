"""Every exception assay raises on purpose.

    AssayError
    ├── UsageError (ValueError)      a value the caller gave is not allowed
    │   └── SnapshotError            bytes that are not a valid saved world
    ├── EpisodeOver (RuntimeError)   a finished world was asked to go on
    ├── WorldFull (RuntimeError)     more creatures and plants than a world can hold
    └── OutputError (OSError)        a result could not be written

Messages name the bad value, what is allowed and what to do next; the command
line prints them as they are, without a traceback. Imports nothing of assay.
"""

__all__ = [
    "AssayError",
    "EpisodeOver",
    "OutputError",
    "SnapshotError",
    "UsageError",
    "WorldFull",
]


class AssayError(Exception):
    """The base of all exceptions that assay raises on purpose."""


class UsageError(AssayError, ValueError):
    """A value the caller gave is not allowed; nothing was started."""


class SnapshotError(UsageError):
    """Bytes that are not a valid saved world."""


class EpisodeOver(AssayError, RuntimeError):
    """A finished world was asked to go on."""


class WorldFull(AssayError, RuntimeError):
    """More creatures and plants than a world can hold."""


class OutputError(AssayError, OSError):
    """A result could not be written."""
