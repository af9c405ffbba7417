"""Estimates that were chosen for their size, plans made from them, and times and aggregates.

A part of `python -m prove.statistics`.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from assay.stats.aggregates import Aggregate, aggregate_intervals
from assay.stats.differences import pairing
from assay.stats.estimates import mean_estimate
from assay.stats.intervals import t_interval
from assay.stats.multiplicity import after_verdict, plan_effect, shrunken_means
from assay.stats.power import power_of, trials_needed
from assay.stats.shares import pass_all, pass_any
from assay.stats.survival import incidence_test, restricted_times

from .cells import SEED, Cell, Floats, Row, Rows, Trial, normal, table
from .parts import Found, markdown
from .shares import LEAST, MOST

__all__ = ["chosen"]

_POWER: Final = 0.8


def chosen(sets: int) -> Found:
    """All tables, one in ten of the sets."""
    sets = max(100, sets // 10)
    tables = (
        ("The difference shown after a verdict, in standard deviations.", _after(sets)),
        ("The best of several models that were played in 15 worlds.", _best(sets)),
        ("Plans from undecided pilots, for a power of 80 %.", _plans(sets)),
        (
            "How often pairing is said to hurt, and a correlation from 5 pairs on.",
            table(13, sets, ("correlation", "n"), _pairing_rows()),
        ),
        (
            "IQM of 26 tasks, and pass@3 and pass^3 of 20 tasks with 8 attempts: coverage of"
            " nominal 95 %.",
            table(14, sets, ("runs of a task",), _aggregate_rows()),
        ),
        (
            "Times to an event that half come to and a third die before: false verdicts of the"
            " log-rank test, and coverage of the restricted mean.",
            table(15, sets, ("n",), _time_rows()),
        ),
    )
    text = "\n\n".join(f"{title}\n\n{found.text}" for title, found in tables)
    return Found(text, tuple(sentence for _, found in tables for sentence in found.missed))


def _after(sets: int) -> Found:
    lines, missed = list[list[str]](), list[str]()
    for at, truth in enumerate((0.2, 0.3, 0.5, 0.8)):
        for n in (8, 15, 30):
            rng = np.random.default_rng([SEED, 16, at, n])
            found = [mean_estimate(row) for row in rng.normal(truth, 1, (4 * sets, n))]
            significant = [one for one in found if one.p_value() < 0.05]
            plain = float(np.mean([one.point for one in significant]))
            shrunk = float(np.mean([after_verdict(one) for one in significant]))
            lines.append([f"{truth:g}", str(n), f"{plain:.2f}", f"{shrunk:.2f}"])
            if (
                truth <= 0.5
                and n >= 15
                and abs(shrunk - truth) > max(0.1, 0.6 * (plain - truth))
            ):
                missed.append(f"after a verdict at {truth:g}, n = {n}: {shrunk:.2f}")
    return Found(markdown(["truth", "n", "shown", "shrunken"], lines), tuple(missed))


def _best(sets: int) -> Found:
    lines, missed = list[list[str]](), list[str]()
    for models in (2, 8, 16):
        for spread in (0.0, 0.3, 1.0):
            rng = np.random.default_rng([SEED, 17, models, round(10 * spread)])
            luck = np.zeros((sets, 2))
            for at in range(sets):
                truth = spread * rng.standard_normal(models)
                values = truth[:, None] + rng.normal(0, 1, (models, 15)) + rng.normal(0, 1, 15)
                means, shrunk = values.mean(axis=1), shrunken_means(list(values), paired=True)
                best = int(means.argmax())
                # Against the mean of all, so that what worlds do to all is out.
                own = truth[best] - truth.mean()
                luck[at] = (means[best] - means.mean() - own, shrunk[best] - means.mean() - own)
            plain, left = luck.mean(axis=0)
            lines.append([str(models), f"{spread:g}", f"{plain:+.2f}", f"{left:+.2f}"])
            if abs(left) > max(0.1, plain / 2):
                missed.append(
                    f"best of {models}, spread {spread:g}: luck of {left:+.2f} is left"
                )
    head = ["models", "true sd between them", "luck of the best", "left after shrinking"]
    return Found(markdown(head, lines), tuple(missed))


def _plans(sets: int) -> Found:
    lines, missed = list[list[str]](), list[str]()
    for truth in (0.2, 0.3, 0.5):
        for n in (5, 10, 20):
            rng = np.random.default_rng([SEED, 18, round(10 * truth), n])
            powers = np.array(
                [_planned(row, truth) for row in rng.normal(truth, 1, (sets, n))], np.float64
            )
            powers = powers[~np.isnan(powers[:, 0])]
            plain, shrunk = powers.mean(axis=0)
            lines.append([f"{truth:g}", str(n), f"{100 * plain:.0f}", f"{100 * shrunk:.0f}"])
            if shrunk < _POWER - 3 * float(powers[:, 1].std()) / math.sqrt(len(powers)):
                missed.append(f"plan at {truth:g} from {n} pairs: power {shrunk:.1%}")
    head = ["true effect", "pilot", "power of the plain plan", "of the shrunken one"]
    return Found(markdown(head, lines), tuple(missed))


def _planned(values: Floats, truth: float) -> tuple[float, float]:
    found, n, sd = mean_estimate(values), len(values), float(values.std(ddof=1))
    if found.p_value() < 0.05:
        return math.nan, math.nan
    plain, shrunk = (
        power_of(trials_needed(effect, sd, paired=True).trials, truth, 1, paired=True)
        for effect in (found.point, plan_effect(found.point, n))
    )
    return plain, shrunk


def _pairing_rows() -> Rows:
    rows: dict[tuple[str, ...], Row] = {}
    for correlation in (0.1, 0.3):
        draw = normal(1, correlation=correlation).pairs
        for n in (5, 15, 30):

            def holds(rng: np.random.Generator, n: int = n, truth: float = correlation) -> bool:
                found = pairing(*normal(1, correlation=truth).pairs(rng, n)).correlation
                return found.low <= truth <= found.high

            rows[f"{correlation:g}", str(n)] = {
                "said to hurt": Cell(
                    lambda rng, draw=draw, n=n: pairing(*draw(rng, n)).hurts,  # type: ignore[misc]
                    most=MOST,
                ),
                "correlation": Cell(holds, LEAST),
            }
    return rows


def _aggregate_rows() -> Rows:
    rows: dict[tuple[str, ...], Row] = {}
    for runs in (2, 3, 5, 10):
        least = LEAST if runs != 10 else None
        rows[(str(runs),)] = {
            "IQM, normal": Cell(_iqm(runs, np.random.Generator.standard_normal, 0.0), least),
            "IQM, exponential": Cell(
                _iqm(runs, np.random.Generator.standard_exponential, _middle_exponential())
            ),
            "pass@3": Cell(_passes(pass_any, 0.8), LEAST),
            "pass^3": Cell(_passes(pass_all, 0.2), LEAST),
        }
    return rows


def _middle_exponential() -> float:
    """The mean of the middle half of an exponential."""

    def below(share: float) -> float:
        return share + (1 - share) * math.log(1 - share)

    return 2 * (below(0.75) - below(0.25))


def _iqm(runs: int, draw: Callable[..., Floats], truth: float) -> Trial:
    def trial(rng: np.random.Generator) -> bool:
        scores = draw(rng, (runs, 26))
        found = aggregate_intervals(scores, [Aggregate.IQM], rng=rng, n_resamples=300)
        return found[Aggregate.IQM].low <= truth <= found[Aggregate.IQM].high

    return trial


def _passes(find: Callable[..., tuple[float, float, float]], truth: float) -> Trial:
    """Tasks whose chance of success is drawn from a beta distribution of 2 and 2."""

    def trial(rng: np.random.Generator) -> bool:
        _, low, high = find(rng.binomial(8, rng.beta(2, 2, 20)), [8] * 20, 3)
        return low <= truth <= high

    return trial


def _time_rows() -> Rows:
    return {
        (str(n),): {
            "log-rank, independent": Cell(_times_test(n, paired=False), most=MOST),
            "log-rank, pairs": Cell(_times_test(n, paired=True), most=MOST),
            "restricted mean": Cell(_restricted(n), LEAST if n >= 30 else None),
        }
        for n in (5, 10, 30)
    }


def _episodes(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Times to the event and to death, of which the first counts, within 20."""
    return rng.exponential(20, n), rng.exponential(30, n)


def _times_test(n: int, *, paired: bool) -> Trial:
    def trial(rng: np.random.Generator) -> bool:
        sides = []
        for _ in range(2):
            event, death = _episodes(rng, n)
            sides += [np.minimum(np.minimum(event, death), 20), event < np.minimum(death, 20)]
        found = incidence_test(*sides, paired=paired, rng=rng, n_resamples=499)
        return found.p_value <= 0.05

    return trial


def _restricted(n: int) -> Trial:
    # The share that comes to it by t is 0.6 (1 - exp(-t / 12)), and 20 is the horizon.
    truth = 20 - 0.6 * (20 - 12 * (1 - math.exp(-20 / 12)))

    def trial(rng: np.random.Generator) -> bool:
        event, death = _episodes(rng, n)
        values = restricted_times(
            np.minimum(np.minimum(event, death), 20), event < np.minimum(death, 20), horizon=20
        )
        found = t_interval(values)
        return found.low <= truth <= found.high

    return trial
