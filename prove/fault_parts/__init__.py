"""Parts of `make prove-faults`, a file each: what is tried, how often, and what was lost."""

from .tried import Tried

__all__ = ["Tried"]
