"""Ranking of all subjects by pairwise comparisons.

Subjects are compared in pairs on the worlds that both played, adjusted for the number of pairs.
A subject is ranked below another only if it is shown to be worse; subjects that are not
significantly different share a rank.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from assay.judge.matching import world_means
from assay.judge.missing import judged
from assay.judge.results import Contrast, Setup, Standing, Standings, SubjectFacts
from assay.stats.multiplicity import indistinguishable_groups, ranks, shrunken_means

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def standings(
    subjects: Sequence[SubjectFacts], setup: Setup, *, fewest: int = 3
) -> Standings | None:
    """Compare all pairs in the primary metric, adjusted together; None for fewer subjects.

    The baseline is the first of every pair it is in.
    """
    if len(subjects) < fewest:
        return None
    first = sorted(subjects, key=lambda facts: facts.id != setup.baseline)
    pairs = judged(
        ((one.subject, other.subject) for one, other in combinations(first, 2)),
        setup.primary,
        setup,
    )
    return Standings(pairs=pairs, order=_order(subjects, pairs, setup))


def group_letters(order: Sequence[str], apart: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Return letters by name; names that share a letter do not differ significantly."""
    groups = indistinguishable_groups(order, apart)
    # Letters after z are a2, b2 and so on.
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
    apart = [(pair.baseline, pair.candidate) for pair in pairs if pair.shows_difference]
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
    """Return the means, shrunk for the winner's curse."""
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
