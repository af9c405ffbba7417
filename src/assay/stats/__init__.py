"""Statistics as pure functions on numbers; nothing here opens a file or draws."""

from assay.stats.anytime import anytime_bounds
from assay.stats.clusters import (
    clustered_difference,
    clustered_difference_estimate,
    clustered_estimate,
    clustered_mean,
)
from assay.stats.differences import (
    denominator_note,
    paired_difference,
    ratio_of_means,
    relative_change,
    unpaired_difference,
)
from assay.stats.effects import (
    cliffs_delta,
    cohens_d,
    cohens_dz,
    hedges_g,
    probability_of_improvement,
)
from assay.stats.estimates import Estimate, difference_estimate, mean_estimate
from assay.stats.intervals import Interval, t_interval, wilson
from assay.stats.learning import (
    Crossing,
    Summary,
    SummarySpec,
    auc,
    final_value,
    last_n_mean,
    slope,
    summarize_curve,
    time_to_threshold,
)
from assay.stats.losses import Filled, losses_matter, worst_cases
from assay.stats.many import (
    Correction,
    benjamini_hochberg,
    holm,
)
from assay.stats.means import Method, Side, bootstrap_means, mean_interval, skewness_note
from assay.stats.nested import hierarchical_bootstrap
from assay.stats.normality import Normality, normality
from assay.stats.pairing import Pairing, pairing
from assay.stats.passes import pass_all, pass_any
from assay.stats.planning import (
    Needed,
    TrialPrice,
    first_n_below,
    minimum_detectable_effect,
    power_of,
    trials_for_precision,
    trials_needed,
)
from assay.stats.precision import relative_standard_error
from assay.stats.profiles import Band, ProfileKind, performance_profile, sample_efficiency
from assay.stats.ranking import indistinguishable_groups, ranks
from assay.stats.rl import (
    Aggregate,
    aggregate,
    aggregate_difference,
    aggregate_intervals,
    average_probability_of_improvement,
    iqm,
    optimality_gap,
    runs_note,
    task_mean,
    task_median,
)
from assay.stats.samples import as_sample
from assay.stats.score import (
    ScoreDifference,
    ScoreEstimate,
    crafter_score,
    crafter_score_interval,
    expected_score_at,
    expected_score_of_rates,
    score_difference,
    score_interval_of_rates,
)
from assay.stats.selection import after_verdict, plan_effect, shrunken_means
from assay.stats.sequential import (
    Boundary,
    LookResult,
    SequentialDesign,
    decide,
    first_decision,
    looks,
)
from assay.stats.shares import (
    exact_share,
    fisher_exact,
    share_difference,
    share_equivalence,
    share_test,
)
from assay.stats.significance import (
    Equivalence,
    TestResult,
    equivalence_test,
    mann_whitney_test,
    paired_t_test,
    permutation_test,
    sign_flip_test,
    welch_t_test,
    wilcoxon_test,
)
from assay.stats.spending import Spending, z_bounds
from assay.stats.spread import sd_interval, sd_sampling_factors
from assay.stats.survival import (
    Incidence,
    cumulative_incidence,
    incidence_test,
    median_time,
    restricted_times,
)
from assay.stats.t_bounds import t_bounds
from assay.stats.windows import PercentWindow, Window

__all__ = [
    "Aggregate",
    "Band",
    "Boundary",
    "Correction",
    "Crossing",
    "Equivalence",
    "Estimate",
    "Filled",
    "Incidence",
    "Interval",
    "LookResult",
    "Method",
    "Needed",
    "Normality",
    "Pairing",
    "PercentWindow",
    "ProfileKind",
    "ScoreDifference",
    "ScoreEstimate",
    "SequentialDesign",
    "Side",
    "Spending",
    "Summary",
    "SummarySpec",
    "TestResult",
    "TrialPrice",
    "Window",
    "after_verdict",
    "aggregate",
    "aggregate_difference",
    "aggregate_intervals",
    "anytime_bounds",
    "as_sample",
    "auc",
    "average_probability_of_improvement",
    "benjamini_hochberg",
    "bootstrap_means",
    "cliffs_delta",
    "clustered_difference",
    "clustered_difference_estimate",
    "clustered_estimate",
    "clustered_mean",
    "cohens_d",
    "cohens_dz",
    "crafter_score",
    "crafter_score_interval",
    "cumulative_incidence",
    "decide",
    "denominator_note",
    "difference_estimate",
    "equivalence_test",
    "exact_share",
    "expected_score_at",
    "expected_score_of_rates",
    "final_value",
    "first_decision",
    "first_n_below",
    "fisher_exact",
    "hedges_g",
    "hierarchical_bootstrap",
    "holm",
    "incidence_test",
    "indistinguishable_groups",
    "iqm",
    "last_n_mean",
    "looks",
    "losses_matter",
    "mann_whitney_test",
    "mean_estimate",
    "mean_interval",
    "median_time",
    "minimum_detectable_effect",
    "normality",
    "optimality_gap",
    "paired_difference",
    "paired_t_test",
    "pairing",
    "pass_all",
    "pass_any",
    "performance_profile",
    "permutation_test",
    "plan_effect",
    "power_of",
    "probability_of_improvement",
    "ranks",
    "ratio_of_means",
    "relative_change",
    "relative_standard_error",
    "restricted_times",
    "runs_note",
    "sample_efficiency",
    "score_difference",
    "score_interval_of_rates",
    "sd_interval",
    "sd_sampling_factors",
    "share_difference",
    "share_equivalence",
    "share_test",
    "shrunken_means",
    "sign_flip_test",
    "skewness_note",
    "slope",
    "summarize_curve",
    "t_bounds",
    "t_interval",
    "task_mean",
    "task_median",
    "time_to_threshold",
    "trials_for_precision",
    "trials_needed",
    "unpaired_difference",
    "welch_t_test",
    "wilcoxon_test",
    "wilson",
    "worst_cases",
    "z_bounds",
]
