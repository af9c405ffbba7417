"""Everybody against everybody: the order of subjects, and what it is worth.

Subjects are compared pair by pair on the worlds that both played, adjusted for the number of
pairs: one stands below another only if it is shown to be worse, and those that cannot be told
apart share a place.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from assay.judge.contrasts import contrast, decided
from assay.judge.matching import world_means
from assay.judge.results import Contrast, Setup, Standing, Standings, SubjectFacts
from assay.stats.multiplicity import indistinguishable_groups, ranks, shrunken_means
from assay.types import Verdict

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def standings(
    subjects: Sequence[SubjectFacts], setup: Setup, *, fewest: int = 3
) -> Standings | None:
    """All pairs in the metric that decides, adjusted together; None for fewer subjects.

    The baseline is the first of every pair it is in.
    """
    if len(subjects) < fewest:
        return None
    first = sorted(subjects, key=lambda facts: facts.id != setup.baseline)
    pairs = decided(
        [
            contrast(one.subject, other.subject, setup.primary, setup)
            for one, other in combinations(first, 2)
        ],
        setup,
    )
    return Standings(pairs=pairs, order=_order(subjects, pairs, setup))


def group_letters(order: Sequence[str], apart: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """The letters of each name; those that share one cannot be told apart."""
    groups = indistinguishable_groups(order, apart)
    # After z come a2, b2 and so on.
    letters = [
        _LETTERS[at % len(_LETTERS)]
        + (str(at // len(_LETTERS) + 1) if at >= len(_LETTERS) else "")
        for at in range(len(groups))
    ]
    return {
        name: "".join(
            letter for letter, group in zip(letters, groups, strict=True) if name in group
        )
        for name in order
    }


def _order(
    subjects: Sequence[SubjectFacts], pairs: Sequence[Contrast], setup: Setup
) -> tuple[Standing, ...]:
    lower = setup.primary in setup.lower_is_better
    means = {facts.id: facts.metrics[setup.primary].mean.point for facts in subjects}
    clear = (Verdict.BETTER, Verdict.WORSE)
    apart = [(pair.baseline, pair.candidate) for pair in pairs if pair.verdict in clear]
    places = ranks(means, higher_is_better=not lower, significant=apart)
    order = sorted(means, key=lambda name: means[name] if lower else -means[name])
    letters = group_letters(order, apart)
    shared = list(places.values())
    shrunken = _shrunken(subjects, setup.primary)
    return tuple(
        Standing(
            name, places[name], shared.count(places[name]) > 1, letters[name], shrunken[name]
        )
        for name in order
    )


def _shrunken(subjects: Sequence[SubjectFacts], metric: str) -> dict[str, float]:
    """The means without the luck that the best of several was chosen with."""
    worlds = {facts.id: world_means(facts.subject.trials, metric) for facts in subjects}
    if len(worlds) < 2 or min(map(len, worlds.values())) < 2:
        return {facts.id: facts.metrics[metric].mean.point for facts in subjects}
    names = list(next(iter(worlds.values())))
    paired = all(own.keys() == set(names) for own in worlds.values())
    samples = [
        [own[name] for name in names] if paired else list(own.values())
        for own in worlds.values()
    ]
    return dict(zip(worlds, shrunken_means(samples, paired=paired).tolist(), strict=True))
