"""Who is better: from the outcomes of trials to verdicts. No markup, no figures, no files.

design, copies, looks: what forbids a verdict, or governs it, before any number
                  │
scales ─► matching ─► contrasts ─► losses, planning, ranking, over_time
all of it ─► facts, which `report` puts into words, tables and figures
"""

from assay.judge.comparing import compare
from assay.judge.contrasts import interval_verdict
from assay.judge.facts import Comparison, Contrast, TaskRule
from assay.judge.over_time import OverTime, over_time
from assay.judge.ranking import Ranking, rank_models
from assay.types import Verdict

__all__ = [
    "Comparison",
    "Contrast",
    "OverTime",
    "Ranking",
    "TaskRule",
    "Verdict",
    "compare",
    "interval_verdict",
    "over_time",
    "rank_models",
]
