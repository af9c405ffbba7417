"""Who is better: from the outcomes of trials to verdicts. No markup, no figures, no files.

matching ─► contrasts ─► verdicts ─► settling
                              └────► standings ─► ranking
all of it ─► facts, which `report` puts into words, tables and figures
"""

from assay.judge.comparing import compare
from assay.judge.facts import Comparison, Contrast, Verdict
from assay.judge.over_time import OverTime, over_time
from assay.judge.ranking import Ranking, rank_models

__all__ = [
    "Comparison",
    "Contrast",
    "OverTime",
    "Ranking",
    "Verdict",
    "compare",
    "over_time",
    "rank_models",
]
