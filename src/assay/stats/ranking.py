"""Places of models, where those that the data do not tell apart share one."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from assay._util.names import unknown_name
from assay.errors import UsageError

__all__ = ["indistinguishable_groups", "ranks"]


def ranks(
    means: Mapping[str, float],
    *,
    higher_is_better: bool = True,
    significant: Iterable[tuple[str, str]] | None = None,
) -> dict[str, int]:
    """The rank of each model, from 1; ties share the best rank of theirs (1, 2, 2, 4).

    Without `significant` only equal means tie. With it, the pairs of models that the data
    told apart, a rank is 1 plus the number of models that are shown to be better: a model is
    second only if there is one that beats it. That is the best rank the data leave open
    (Mogstad, Romano, Shaikh and Wilhelm, "Inference for ranks", 2024).
    """
    sign = 1 if higher_is_better else -1
    scores = {name: sign * float(mean) for name, mean in means.items()}
    for name, score in scores.items():
        if not np.isfinite(score):
            raise UsageError(f"the mean of {name!r} is {score}; rank models that have one")
    apart = None if significant is None else _told_apart(means, significant)
    return {
        name: 1
        + sum(
            score < other and (apart is None or frozenset((name, rival)) in apart)
            for rival, other in scores.items()
        )
        for name, score in scores.items()
    }


def indistinguishable_groups(
    names: Sequence[str], significant: Iterable[tuple[str, str]]
) -> tuple[tuple[str, ...], ...]:
    """The largest groups within which no two models differ significantly.

    Two models share a group exactly if the data do not tell them apart, as in a compact
    letter display (Piepho, "An algorithm for a letter-based representation of all-pairwise
    comparisons", 2004): the groups are the maximal cliques of the graph of pairs that do not
    differ (Bron and Kerbosch, "Algorithm 457", 1973). With names ordered by their mean the
    groups are as a rule runs of neighbours. A model alone is a group of one.

    Args:
        names: All models, best first; groups and their members keep this order.
        significant: The pairs that differ, in either order.
    """
    if len(set(names)) < len(names):
        raise UsageError(f"a model is named twice among {', '.join(names)}; name each once")
    apart = _told_apart(names, significant)
    near = {
        name: {other for other in names if other != name and {name, other} not in apart}
        for name in names
    }
    place = {name: at for at, name in enumerate(names)}
    groups: list[list[int]] = []

    def grow(group: set[str], open_: set[str], closed: set[str]) -> None:
        if not open_ and not closed:
            groups.append(sorted(place[name] for name in group))
            return
        pivot = max(open_ | closed, key=lambda name: (len(near[name] & open_), -place[name]))
        for name in sorted(open_ - near[pivot], key=place.__getitem__):
            grow(group | {name}, open_ & near[name], closed & near[name])
            open_, closed = open_ - {name}, closed | {name}

    if names:
        grow(set(), set(names), set())
    return tuple(tuple(names[at] for at in group) for group in sorted(groups))


def _told_apart(
    names: Iterable[str], significant: Iterable[tuple[str, str]]
) -> set[frozenset[str]]:
    known = list(names)
    apart = set()
    for pair in significant:
        for name in pair:
            if name not in known:
                raise UsageError(unknown_name("model", name, known))
        apart.add(frozenset(pair))
    return apart
