"""Three subjects or more: everybody against everybody, and the order that follows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay.judge.contrasts import contrast
from assay.judge.facts import Contrast, Setup, Standing, Standings, SubjectFacts, Verdict
from assay.judge.verdicts import decided
from assay.stats.ranking import indistinguishable_groups, ranks

__all__ = ["standings"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def standings(
    subjects: Sequence[SubjectFacts], setup: Setup, *, fewest: int = 3
) -> Standings | None:
    """All pairs in the metric that decides, adjusted together; None for fewer subjects."""
    if len(subjects) < fewest:
        return None
    pairs = decided(
        [
            replace(contrast(one.subject, other.subject, setup.primary, setup), pairs=())
            for at, one in enumerate(subjects)
            for other in subjects[at + 1 :]
        ],
        setup,
    )
    return Standings(pairs=pairs, order=_order(subjects, pairs, setup))


def _order(
    subjects: Sequence[SubjectFacts], pairs: Sequence[Contrast], setup: Setup
) -> tuple[Standing, ...]:
    lower = setup.primary in setup.lower_is_better
    means = {one.id: one.metrics[setup.primary].mean.point for one in subjects}
    apart = _told_apart(pairs)
    places = ranks(means, higher_is_better=not lower, significant=apart)
    order = sorted(means, key=lambda one: means[one] if lower else -means[one])
    letters = _letters(order, apart)
    shared = list(places.values())
    return tuple(
        Standing(one, places[one], shared.count(places[one]) > 1, letters[one]) for one in order
    )


def _told_apart(pairs: Sequence[Contrast]) -> list[tuple[str, str]]:
    clear = (Verdict.BETTER, Verdict.WORSE)
    return [(one.baseline, one.candidate) for one in pairs if one.verdict in clear]


def _letters(order: Sequence[str], apart: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    groups = indistinguishable_groups(order, apart)
    return {
        one: "".join(_letter(at) for at, group in enumerate(groups) if one in group)
        for one in order
    }


def _letter(at: int) -> str:
    turn, letter = divmod(at, len(_LETTERS))
    return _LETTERS[letter] + (str(turn + 1) if turn else "")
