"""Parts of `make prove-faults`, a file each: what is tried, how often, and what was lost."""

from .tried import FaultRow

__all__ = ["FaultRow"]
