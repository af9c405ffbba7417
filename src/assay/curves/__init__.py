"""Metric curves of training runs: read, stored, summarised, compared.

    from assay.curves import analyse, make_settings, parse_pairs, paired_design

A run is an id in a store or a file with a step column. Names are loaded when first used.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .analysis import analyse
    from .design import paired_design, parse_pairs
    from .settings import make_settings

__all__ = ["analyse", "make_settings", "paired_design", "parse_pairs"]

__getattr__, __dir__ = _lazy_names(__name__)
