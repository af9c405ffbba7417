"""Statistics as pure functions on numbers; nothing here opens a file or draws.

    from assay.stats import mean_interval

The names that documents use are here, the others in the modules.
"""

from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.stats.clusters import clustered_difference
    from assay.stats.differences import paired_difference
    from assay.stats.intervals import mean_interval
    from assay.stats.multiplicity import after_verdict, plan_effect, shrunken_means
    from assay.stats.power import trials_needed
    from assay.stats.score import score_difference
    from assay.stats.shares import (
        pass_all,
        pass_any,
        share_difference,
        share_equivalence,
        share_test,
    )
    from assay.stats.significance import sign_flip_test
    from assay.stats.survival import cumulative_incidence, incidence_test, restricted_times

__all__ = [
    "after_verdict",
    "clustered_difference",
    "cumulative_incidence",
    "incidence_test",
    "mean_interval",
    "paired_difference",
    "pass_all",
    "pass_any",
    "plan_effect",
    "restricted_times",
    "score_difference",
    "share_difference",
    "share_equivalence",
    "share_test",
    "shrunken_means",
    "sign_flip_test",
    "trials_needed",
]

__getattr__, __dir__ = _lazy_names(__name__)
