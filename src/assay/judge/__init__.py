"""Who is better: from the outcomes of trials to verdicts. No markup, no figures, no files.

subjects, outcomes: what is compared, and the metrics it is compared in
                  │
design, copies, looks: what forbids a verdict, or governs it, before any number
                  │
scales ─► matching ─► contrasts ─► losses, planning, ranking, over_time
all of it ─► facts, which `report` puts into words, tables and figures
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.types import Verdict

    from .comparing import compare
    from .contrasts import interval_verdict
    from .facts import Comparison, Contrast, TaskRule
    from .over_time import OverTime

__all__ = [
    "Comparison",
    "Contrast",
    "OverTime",
    "TaskRule",
    "Verdict",
    "compare",
    "interval_verdict",
]

__getattr__, __dir__ = _lazy_names(__name__)
