"""The rankings of a run in words and for programs; `judge` makes them."""

from collections.abc import Sequence

from assay.judge import Contrast, Ranking, Verdict
from assay.report.comparison.numbers import bounds, change, p_text
from assay.report.comparison.words import on_these_tasks, sample_words
from assay.stats.intervals import Interval

__all__ = ["ranking_json", "ranking_sentences"]

_MOST_SENTENCES = 6
"""With more pairs of models than that, only those with the best mean are in words."""


def ranking_sentences(ranking: Ranking) -> list[str]:
    """Who is better than whom, in words that hold untrusted names."""
    few, best = len(ranking.contrasts) <= _MOST_SENTENCES, ranking.places[0].model
    return [
        _sentence(contrast)
        for contrast in ranking.contrasts
        if few or best in (contrast.baseline, contrast.candidate)
    ]


def ranking_json(rankings: Sequence[Ranking]) -> list[dict[str, object]]:
    """The rankings for a program to read."""
    return [
        {
            "metric": one.metric,
            "places": [
                {"model": place.model, "place": place.place, "shared": place.shared}
                for place in one.places
            ],
            "pairs": [_pair_json(contrast) for contrast in one.contrasts],
        }
        for one in rankings
    ]


def _sentence(contrast: Contrast) -> str:
    """One pair of models in words, the better one first."""
    first, other, gap = contrast.candidate, contrast.baseline, contrast.difference
    where = on_these_tasks(contrast)
    if contrast.verdict is Verdict.UNDECIDED:
        if contrast.tests is None:
            return f"{first} and {other}: nobody can say, {sample_words(contrast)}."
        return (
            f"{first} and {other} cannot be told apart{where}: {_gap(contrast, gap)},"
            f" {sample_words(contrast)}."
        )
    if contrast.verdict is Verdict.WORSE:
        first, other, gap = other, first, Interval(-gap.point, -gap.high, -gap.low)
    assert contrast.tests is not None
    return (
        f"{first} is better than {other}{where}: {_gap(contrast, gap)},"
        f" {sample_words(contrast)}, {p_text(contrast.tests.p_adjusted)}."
    )


def _gap(contrast: Contrast, gap: Interval) -> str:
    return f"{change(contrast.metric, gap.point)} ({bounds(contrast.metric, gap)})"


def _pair_json(contrast: Contrast) -> dict[str, object]:
    gap = contrast.difference
    return {
        "model": contrast.candidate,
        "against": contrast.baseline,
        "verdict": contrast.verdict,
        "difference": gap.point,
        "low": gap.low if gap.known else None,
        "high": gap.high if gap.known else None,
        "n": contrast.n_candidate,
        "paired": contrast.paired,
        "p_adjusted": None if contrast.tests is None else contrast.tests.p_adjusted,
    }
