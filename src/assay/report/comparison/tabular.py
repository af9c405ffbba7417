"""A comparison as CSV: one row per candidate and metric, each saying what made it.

A spreadsheet reads no text in it as a formula.
"""

import csv
import io
import json
import math
from typing import Any

from assay.judge.facts import Comparison, Contrast
from assay.report.comparison.origin import configuration, versions
from assay.report.comparison.values import interval_columns
from assay.stats.intervals import Interval

__all__ = ["as_csv", "safe"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def as_csv(comparison: Comparison) -> str:
    """All contrasts, the metric that decides first."""
    return to_csv([_row(comparison, one) for one in comparison.contrasts])


def to_csv(rows: list[dict[str, Any]]) -> str:
    """Rows that have the same columns, with a head."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if rows:
        writer.writerow(rows[0])
    writer.writerows([safe(value) for value in row.values()] for row in rows)
    return stream.getvalue()


def safe(value: Any) -> str:
    """A value as one cell; what is not known is empty."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    # A quote in front makes it text for every spreadsheet.
    return f"'{text}" if text.startswith(_FORMULA) else text


def _row(comparison: Comparison, one: Contrast) -> dict[str, Any]:
    a, b = (comparison.of(each).subject for each in (one.baseline, one.candidate))
    tests, effects, pairing = one.tests, one.effects, one.pairing
    nothing = Interval(math.nan, math.nan, math.nan)
    found = versions()
    return {
        "metric": one.metric,
        "decides": one.metric == comparison.setup.primary,
        "baseline": a.name,
        "candidate": b.name,
        "verdict": one.verdict.value,
        "paired": one.paired,
        "n_baseline": one.n_baseline,
        "n_candidate": one.n_candidate,
        **interval_columns("mean_baseline", one.mean_baseline),
        **interval_columns("mean_candidate", one.mean_candidate),
        **interval_columns("difference", one.difference),
        **interval_columns("relative", one.relative or nothing),
        "by_looks": one.look is not None,
        "p_t": tests and tests.t.p_value,
        "p_adjusted": tests and tests.p_adjusted,
        "p_resampling": tests and tests.resampling.p_value,
        "p_rank": tests and tests.rank.p_value,
        "p_equivalence": tests and tests.equivalence_p,
        **interval_columns("cohens_d", effects.d if effects else nothing),
        **interval_columns("hedges_g", effects.g if effects else nothing),
        **interval_columns("cliffs_delta", effects.delta if effects else nothing),
        **interval_columns("p_higher", effects.improvement if effects else nothing),
        "seed_correlation": pairing and pairing.correlation.point,
        "variance_saved": pairing and pairing.saved,
        "level": comparison.setup.level,
        "generator_seed": comparison.setup.seed,
        "baseline_id": a.id,
        "candidate_id": b.id,
        "baseline_version": a.version,
        "candidate_version": b.version,
        "baseline_commit": a.commit,
        "candidate_commit": b.commit,
        "baseline_source": a.source,
        "candidate_source": b.source,
        "assay": found["assay"],
        "assay_commit": found["commit"],
        "configuration": json.dumps(configuration(comparison.setup)),
    }
