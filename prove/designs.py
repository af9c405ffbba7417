"""Worlds played several times, lost trials, plans of exact tests, and scores of a judge.

A part of `python -m prove.statistics`.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from assay.stats.clusters import korn_graubard, world_share_difference, world_share_test
from assay.stats.estimates import difference_estimate, mean_estimate
from assay.stats.intervals import Interval
from assay.stats.judges import Accuracy, JudgedSide, corrected_difference, rogan_gladen
from assay.stats.missing import worst_case_interval
from assay.stats.power import fisher_power, mcnemar_power, share_trials_needed
from assay.stats.shares import share_test
from assay.stats.significance import paired_t_test

from .cells import SEED, Cell, Contest, Floats, Row, Rows, Trial, Two, contests, held, table
from .parts import Found, markdown
from .shares import LEAST, MOST

__all__ = ["designs"]

_DESIGNS: Final = ((5, 10), (10, 3), (20, 3), (50, 2))
"""Worlds, and plays of each."""
_POWER: Final = 0.79
"""Mean power of plans for 80 %: a mean over the posterior of a pilot, not at its truth."""


def designs(sets: int) -> Found:
    """All tables, one in five of the sets or fewer."""
    some, few = max(100, sets // 5), max(100, sets // 40)
    tables = (
        (
            "Share of successes of worlds with several plays: coverage of nominal 95 %, and"
            " mean width relative to the best valid method.",
            contests(30, some, ("plays", "worlds x plays", "share"), _share_rows()),
        ),
        (
            "Difference of two such shares, the same worlds: the same.",
            contests(31, some, ("plays", "worlds x plays", "shares"), _difference_rows()),
        ),
        (
            "Verdicts on such shares at 5 %: false ones, and power at the difference at which"
            " the reference has 80 %. The reference is McNemar's test of worlds for"
            " deterministic plays, else the t test of world means.",
            _verdicts(some),
        ),
        (
            "Thirty pairs of counts of 22, of which the lowest values of one side are lost:"
            " coverage of nominal 95 %.",
            table(33, some, ("lost",), _loss_rows()),
        ),
        ("Plans of exact tests from a pilot, for a power of 80 %: mean power.", _plans(few)),
        (
            "Scores of 0 and 1 by a judge that favours one side, corrected by labels: coverage"
            " of nominal 95 %.",
            table(35, some, ("sensitivity, specificity", "labels of a side"), _judge_rows()),
        ),
    )
    text = "\n\n".join(f"{title}\n\n{found.text}" for title, found in tables)
    return Found(text, tuple(sentence for _, found in tables for sentence in found.missed))


_KINDS: Final = ("deterministic", "independent", "uneven")


def _worlds(
    rng: np.random.Generator, kind: str, shares: tuple[float, ...], worlds: int, plays: int
) -> list[Floats]:
    """Shares of successes by world, of one or two sides in the same worlds."""
    luck = rng.random(worlds)
    found = []
    for share in shares:
        chances = np.full(worlds, share)
        if kind == "deterministic":
            # Half of the worlds that a side solves depend on the side.
            own = np.where(rng.random(worlds) < 0.5, rng.random(worlds), luck)
            chances = (own < share) * 1.0
        elif kind == "uneven":
            chances = rng.beta(2 * share, 2 * (1 - share), worlds)
        found.append(rng.binomial(plays, chances) / plays)
    return found


def _share_rows() -> dict[tuple[str, ...], Contest]:
    rows: dict[tuple[str, ...], Contest] = {}
    for kind in _KINDS:
        for worlds, plays in _DESIGNS:
            for share in (0.05, 0.3, 0.8):

                def draw(
                    rng: np.random.Generator,
                    given: tuple[str, tuple[float, ...], int, int] = (
                        kind,
                        (share,),
                        worlds,
                        plays,
                    ),
                ) -> tuple[Floats, ...]:
                    return tuple(_worlds(rng, *given))

                def interval(
                    values: Floats, counts: tuple[int, ...] = (plays,) * worlds
                ) -> Interval:
                    return korn_graubard(values, counts)

                def student(values: Floats) -> Interval:
                    return mean_estimate(values, step=1).interval(low=0, high=1)

                promised = LEAST if kind != "uneven" else None
                rows[kind, f"{worlds} x {plays}", f"{share:g}"] = Contest(
                    draw,
                    share,
                    {"Korn-Graubard": interval, "t, step of a world": student},
                    promised,
                )
    return rows


def _difference_rows() -> dict[tuple[str, ...], Contest]:
    rows: dict[tuple[str, ...], Contest] = {}
    for kind in _KINDS:
        for worlds, plays in _DESIGNS:
            for shares in ((0.1, 0.1), (0.5, 0.5), (0.3, 0.7)):

                def draw(
                    rng: np.random.Generator,
                    given: tuple[str, tuple[float, ...], int, int] = (
                        kind,
                        shares,
                        worlds,
                        plays,
                    ),
                ) -> tuple[Floats, ...]:
                    return tuple(_worlds(rng, *given))

                def interval(
                    a: Floats, b: Floats, counts: tuple[int, ...] = (plays,) * worlds
                ) -> Interval:
                    return world_share_difference(a, b, counts, counts, paired=True)

                def student(a: Floats, b: Floats) -> Interval:
                    return difference_estimate(a, b, paired=True, step=1).interval(
                        low=-1, high=1
                    )

                promised = LEAST if kind != "uneven" else None
                rows[kind, f"{worlds} x {plays}", f"{shares[0]:g}, {shares[1]:g}"] = Contest(
                    draw,
                    shares[1] - shares[0],
                    {"by world": interval, "t, step of a world": student},
                    promised,
                )
    return rows


def _verdicts(sets: int) -> Found:
    lines, missed = [], []
    for at, kind in enumerate(_KINDS):
        for worlds, plays in _DESIGNS[1:]:
            counts = (plays,) * worlds

            def ours(a: Floats, b: Floats, counts: tuple[int, ...] = counts) -> bool:
                test = world_share_test(a, b, counts, counts, paired=True)
                return test.p_value < 0.05

            def reference(a: Floats, b: Floats, kind: str = kind) -> bool:
                if kind == "deterministic":
                    return share_test(a, b, paired=True).p_value < 0.05
                return not np.array_equal(a, b) and paired_t_test(a, b).p_value < 0.05

            def rate(
                more: float,
                test: Callable[[Floats, Floats], bool],
                number: int,
                given: tuple[str, int, int] = (kind, worlds, plays),
                at: int = at,
            ) -> float:
                rng = np.random.default_rng([SEED, 32, at, given[1], number])
                shares = (0.5 - more / 2, 0.5 + more / 2)
                return (
                    sum(
                        test(*_worlds(rng, given[0], shares, *given[1:])) for _ in range(number)
                    )
                    / number
                )

            apart = next(
                (d for d in np.arange(0.05, 1, 0.05) if rate(d, reference, 200) >= 0.8), 0.95
            )
            false, power, base = rate(0, ours, sets), rate(apart, ours, sets), 0.0
            base = rate(apart, reference, sets)
            label = f"{kind}, {worlds} x {plays}"
            missed += [f"{label}: {text}" for text in held(false, sets, most=MOST)]
            if power < 0.8 * base:
                missed.append(f"{label}: power {power:.1%}, {base:.1%} of the reference")
            figures = [100 * false, 100 * power, 100 * base]
            lines.append(
                [kind, f"{worlds} x {plays}", f"{apart:.2f}", *(f"{x:.1f}" for x in figures)]
            )
    head = ["plays", "worlds x plays", "difference", "false", "power", "reference"]
    return Found(f"{markdown(head, lines)}\n\n{sets:,} sets a cell.", tuple(missed))


def _loss_rows() -> Rows:
    def paired(a: Floats, b: Floats) -> Interval:
        return difference_estimate(a, b, paired=True, step=1).interval(low=-22, high=22)

    def drawn(rng: np.random.Generator, lost: int) -> Two:
        a, b = rng.binomial(22, 0.3, (2, 30)) * 1.0
        b[np.argsort(b + rng.random(30))[:lost]] = np.nan
        return a, b

    def bounds(lost: int) -> Trial:
        def trial(rng: np.random.Generator) -> bool:
            found = worst_case_interval(*drawn(rng, lost), paired, low=0, high=22).interval
            return found.low <= 0 <= found.high

        return trial

    def ignored(lost: int) -> Trial:
        def trial(rng: np.random.Generator) -> bool:
            a, b = drawn(rng, lost)
            found = paired(a[~np.isnan(b)], b[~np.isnan(b)])
            return found.low <= 0 <= found.high

        return trial

    return {
        (f"{lost} of 30",): {
            "with bounds": Cell(bounds(lost), LEAST),
            "lost trials ignored": Cell(ignored(lost)),
        }
        for lost in (1, 3, 9)
    }


def _plans(sets: int) -> Found:
    lines, missed = [], []
    for at, (n, base, effect) in enumerate(
        (n, base, effect) for n in (20, 50) for base, effect in ((0.4, 0.3), (0.1, 0.3))
    ):
        line = [str(n), f"{base:g}, {base + effect:g}"]
        for paired in (True, False):
            rng, powers = np.random.default_rng([SEED, 34, at, paired]), []
            for _ in range(sets):
                a, b = (rng.random(n) < base) * 1, (rng.random(n) < base + effect) * 1
                trials = share_trials_needed(a, b, effect, paired=paired).trials
                won, lost = (base + effect) * (1 - base), base * (1 - base - effect)
                powers.append(
                    mcnemar_power(trials, won, lost)
                    if paired
                    else fisher_power(trials, base, base + effect)
                )
            mean, error = float(np.mean(powers)), float(np.std(powers)) / sets**0.5
            line.append(f"{100 * mean:.1f}")
            if mean < _POWER - 3 * error:
                missed.append(f"pilot of {n}, {base:g}, paired {paired}: power {mean:.1%}")
        lines.append(line)
    head = ["pilot", "shares", "McNemar", "Fisher"]
    return Found(f"{markdown(head, lines)}\n\n{sets:,} pilots a cell.", tuple(missed))


def _judge_rows() -> Rows:
    def side(rng: np.random.Generator, labels: int, yes: float, no: float) -> JudgedSide:
        truth = rng.random(labels + 300) < 0.5
        chances = np.where(truth, yes, 1 - no)
        judged = (rng.random(len(truth)) < chances) * 1.0
        return JudgedSide(truth[:labels] * 1.0, judged[:labels], judged[labels:])

    def difference(labels: int, yes: float, no: float) -> Trial:
        def trial(rng: np.random.Generator) -> bool:
            a, b = side(rng, labels, yes, no), side(rng, labels, min(1, yes + 0.05), no - 0.2)
            found = corrected_difference(a, b, step=1).interval()
            return found.low <= 0 <= found.high

        return trial

    def share(labels: int, yes: float, no: float) -> Trial:
        def trial(rng: np.random.Generator) -> bool | None:
            hits = (int(rng.binomial(labels, one)) for one in (yes, no))
            accuracy = Accuracy(next(hits), labels, next(hits), labels)
            if accuracy.youden < 0.2:
                return None
            found = rogan_gladen(int(rng.binomial(300, (yes + 1 - no) / 2)), 300, accuracy)
            return found.low <= 0.5 <= found.high

        return trial

    rows: dict[tuple[str, ...], Row] = {}
    for yes, no in ((0.9, 0.8), (0.98, 0.97), (0.7, 0.7)):
        for labels in (20, 50, 100):
            rows[f"{yes:g}, {no:g}", str(labels)] = {
                "difference, PPI++": Cell(difference(labels, yes, no), LEAST),
                "share, Rogan-Gladen": Cell(share(labels, yes, no), LEAST),
            }
    return rows
