"""A comparison for programs: complete as JSON, and a row per candidate and metric as CSV."""

from dataclasses import replace
from typing import Any, Final

from assay.judge.results import Comparison, Contrast, SubjectFacts
from assay.judge.subjects import endings
from assay.report.comparison.sentences import answer_questions
from assay.report.files import interval_columns, to_json_value
from assay.report.provenance import (
    comparison_configuration,
    provenance_columns,
    software_versions,
)

COMPARISON_FORMAT: Final = "assay-comparison/1"
"""Value of the field `format` of every comparison."""


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """Return all results of a comparison; unknown values are null."""
    return {
        "format": COMPARISON_FORMAT,
        "made": software_versions(),
        "configuration": comparison_configuration(comparison.setup),
        "answers": [_answer_values(comparison, contrast) for contrast in comparison.decisive],
        "subjects": [_subject_values(facts) for facts in comparison.subjects],
        "contrasts": [contrast_values(contrast) for contrast in comparison.contrasts],
        "standings": comparison.standings
        and {
            "pairs": [contrast_values(pair) for pair in comparison.standings.pairs],
            "order": to_json_value(comparison.standings.order),
        },
        "instances": to_json_value(comparison.instances),
        "passes": to_json_value(comparison.passes),
        "scores": to_json_value(comparison.scores),
        "score_differences": to_json_value(comparison.score_gaps),
        "notes": list(comparison.notes),
        "left_out": dict(comparison.left_out),
    }


def comparison_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return one row per contrast, the primary metric first, each with its provenance."""
    return [_csv_row(comparison, contrast) for contrast in comparison.contrasts]


def _answer_values(comparison: Comparison, contrast: Contrast) -> dict[str, Any]:
    return {
        "candidate": contrast.candidate,
        "verdict": contrast.verdict.value,
        "lines": [answer._asdict() for answer in answer_questions(comparison, contrast)],
    }


def _subject_values(facts: SubjectFacts) -> dict[str, Any]:
    subject = facts.subject
    kept = ("id", "name", "model", "series", "version", "run_id", "created_at", "commit")
    return {
        **{name: to_json_value(getattr(subject, name)) for name in kept},
        "note": subject.note,
        **({"remarks": to_json_value(subject.remarks)} if subject.remarks else {}),
        "source": subject.source,
        "judged": facts.judged,
        "results": facts.results,
        "failures": facts.failures,
        "infrastructure": facts.infrastructure,
        "endings": endings(subject.trials),
        "metrics": to_json_value(facts.metrics),
        "whole": to_json_value(facts.whole),
    }


def contrast_values(contrast: Contrast) -> dict[str, Any]:
    """Return one contrast for programs; `units` only if it is not about worlds of one task."""
    # Built directly for speed: there may be very many pairs.
    pairs = [
        {"pair": pair, "baseline": a, "candidate": b, "difference": b - a}
        for pair, a, b in contrast.pairs
    ]
    values = {**to_json_value(replace(contrast, pairs=())), "pairs": pairs}
    values["lower_is_better"] = contrast.lower_is_better
    del values["outcome"]
    if contrast.units.tasks < 2 and not contrast.units.partly_shared:
        del values["units"]
    return values


def _csv_row(comparison: Comparison, contrast: Contrast) -> dict[str, Any]:
    baseline, candidate = (
        comparison.of(id).subject for id in (contrast.baseline, contrast.candidate)
    )
    tests, effects, pairing = contrast.tests, contrast.effects, contrast.pairing
    columns = {
        "metric": contrast.metric,
        "decides": contrast.metric == comparison.setup.primary,
        "baseline": baseline.name,
        "candidate": candidate.name,
        "verdict": contrast.verdict.value,
        "paired": contrast.paired,
        "n_baseline": contrast.n_baseline,
        "n_candidate": contrast.n_candidate,
        **interval_columns("mean_baseline", contrast.mean_baseline),
        **interval_columns("mean_candidate", contrast.mean_candidate),
        **interval_columns("difference", contrast.difference),
        **interval_columns("relative", contrast.relative),
        "by_looks": contrast.look is not None,
        "p_t": tests and tests.t.p_value,
        "p_adjusted": tests and tests.p_adjusted,
        "p_resampling": tests and tests.resampling.p_value,
        "p_rank": tests and tests.rank.p_value,
        "p_equivalence": tests and tests.equivalence_p,
        **interval_columns("cohens_d", effects.d if effects else None),
        **interval_columns("hedges_g", effects.g if effects else None),
        **interval_columns("cliffs_delta", effects.delta if effects else None),
        **interval_columns("p_higher", effects.improvement if effects else None),
        "seed_correlation": pairing and pairing.correlation.point,
        "variance_saved": pairing and pairing.saved,
        "level": comparison.setup.level,
        "generator_seed": comparison.setup.seed,
        "baseline_id": baseline.id,
        "candidate_id": candidate.id,
        "baseline_version": baseline.version,
        "candidate_version": candidate.version,
        "baseline_commit": baseline.commit,
        "candidate_commit": candidate.commit,
        "baseline_source": baseline.source,
        "candidate_source": candidate.source,
        **provenance_columns(comparison.setup),
    }
    for role, subject in (("baseline", baseline), ("candidate", candidate)):
        for name in comparison.remarks:
            columns.setdefault(f"{role}_{name}", subject.remarks.get(name))
    return columns
