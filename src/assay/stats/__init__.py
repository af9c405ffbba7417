"""Statistics as pure functions on numbers. No function opens a file or draws a figure.

    from assay.stats import mean_interval

The package exports the functions that the documentation uses. The others are in its modules.
"""

from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.stats.clusters import clustered_difference as clustered_difference
    from assay.stats.differences import paired_difference as paired_difference
    from assay.stats.intervals import mean_interval as mean_interval
    from assay.stats.multiplicity import after_verdict as after_verdict
    from assay.stats.multiplicity import plan_effect as plan_effect
    from assay.stats.multiplicity import shrunken_means as shrunken_means
    from assay.stats.power import trials_needed as trials_needed
    from assay.stats.score import score_difference as score_difference
    from assay.stats.shares import pass_all as pass_all
    from assay.stats.shares import pass_any as pass_any
    from assay.stats.shares import share_difference as share_difference
    from assay.stats.shares import share_equivalence as share_equivalence
    from assay.stats.shares import share_test as share_test
    from assay.stats.significance import sign_flip_test as sign_flip_test
    from assay.stats.survival import cumulative_incidence as cumulative_incidence
    from assay.stats.survival import incidence_test as incidence_test
    from assay.stats.survival import restricted_times as restricted_times

__getattr__, __dir__ = _lazy_names(__name__)
