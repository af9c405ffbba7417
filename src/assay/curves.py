"""Public import path for the analysis of training runs.

The definitions are in `assay.training`.
"""

from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.training.analysis import analyse as analyse
    from assay.training.analysis_settings import make_settings as make_settings
    from assay.training.design import paired_design as paired_design
    from assay.training.design import parse_pairs as parse_pairs

__getattr__, __dir__ = _lazy_names(__name__)
