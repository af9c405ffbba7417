"""Metric curves of training runs: read, stored, summarised, compared.

    from assay.curves import analyse, make_settings, parse_pairs, paired_design

A run is an id in a store or a file with a step column. Names are loaded when first used.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .analysis import Analysis, analyse
    from .design import Design, PairNames, paired_design, parse_pairs, unpaired_design
    from .files import read_run_file
    from .gather import FoundRun, Gathered, Unusable, gather_runs
    from .plan import AnalysisPlan, read_plan
    from .settings import AnalysisSettings, make_settings, make_summary
    from .variance import SummaryVariance, VarianceSettings, analyse_variance, summarize_runs

__all__ = [
    "Analysis",
    "AnalysisPlan",
    "AnalysisSettings",
    "Design",
    "FoundRun",
    "Gathered",
    "PairNames",
    "SummaryVariance",
    "Unusable",
    "VarianceSettings",
    "analyse",
    "analyse_variance",
    "gather_runs",
    "make_settings",
    "make_summary",
    "paired_design",
    "parse_pairs",
    "read_plan",
    "read_run_file",
    "summarize_runs",
    "unpaired_design",
]

__getattr__ = _lazy_names(
    __name__,
    {
        "analysis": ("Analysis", "analyse"),
        "design": ("Design", "PairNames", "paired_design", "parse_pairs", "unpaired_design"),
        "files": ("read_run_file",),
        "gather": ("FoundRun", "Gathered", "Unusable", "gather_runs"),
        "plan": ("AnalysisPlan", "read_plan"),
        "settings": ("AnalysisSettings", "make_settings", "make_summary"),
        "variance": (
            "SummaryVariance",
            "VarianceSettings",
            "analyse_variance",
            "summarize_runs",
        ),
    },
)


def __dir__() -> list[str]:
    return __all__
