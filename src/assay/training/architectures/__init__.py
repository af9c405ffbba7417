"""Kinds of networks by name, how big they are, and which width makes two alike.

from assay.training.architectures import architecture_named

architecture_named("vit_reset").capacity(space, 32).parameters
"""

from .matching import CapacityMatch, matching_width, width_for_runs
from .mlp import Mlp
from .seam import ARCHITECTURES, Architecture, Capacity, architecture_named, register
from .trxl import Trxl
from .vit_reset import VitReset

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Capacity",
    "CapacityMatch",
    "Mlp",
    "Trxl",
    "VitReset",
    "architecture_named",
    "matching_width",
    "register",
    "width_for_runs",
]
