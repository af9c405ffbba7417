"""A metric from version to version of one series.

The experiments of a version are taken together: trials of the same world are averaged, so that
playing a version again makes its mean surer only where it played other worlds. Each version
is compared with the one before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from assay.errors import UsageError
from assay.experiments.subjects import Subject
from assay.judge.comparing import check_choices, common_metrics, task_rule
from assay.judge.contrasts import contrast, decided
from assay.judge.describing import lower_is_better_metrics
from assay.judge.facts import Contrast, Setup, TaskRule
from assay.judge.matching import mean_of, trial_values
from assay.judge.notes import empty_reason
from assay.stats.intervals import Interval

__all__ = ["OverTime", "VersionFacts", "over_time"]

_NO_VERSION = "(no version)"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """What one version of a series earned."""

    version: str
    experiments: tuple[Subject, ...]
    trials: int
    mean: Interval
    change: Contrast | None
    """Beside the version before it; None for the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """One metric over the versions of a series, the oldest first."""

    series: str
    setup: Setup
    rows: tuple[VersionFacts, ...]
    notes: tuple[str, ...]


def over_time(
    subjects: Sequence[Subject],
    *,
    metric: str | None = None,
    level: float = 0.95,
    seed: int = 0,
    tasks: TaskRule | str | None = None,
) -> OverTime:
    """Follow a metric over the versions of a series.

    Args:
        subjects: The experiments of the series, the oldest first.
        metric: What to follow; without it achievements, or the first that all have.
        level: Of the intervals.
        seed: Of the generator.
        tasks: What several tasks are, as `compare` takes it.

    Raises:
        UsageError: No experiment has results, or one lacks the metric.
    """
    check_choices(level, seed=seed)
    empty = [
        subject for subject in subjects if not any(trial.values for trial in subject.trials)
    ]
    usable = [subject for subject in subjects if subject not in empty]
    if not usable:
        reasons = "; ".join(map(empty_reason, empty)) or "it has no experiments"
        raise UsageError(f"there is nothing to follow over time: {reasons}")
    chosen, _ = common_metrics(usable, None if metric is None else [metric])
    setup = Setup(
        metrics=chosen[:1],
        baseline=usable[0].id,
        level=level,
        seed=seed,
        lower_is_better=lower_is_better_metrics(usable),
        tasks=task_rule(tasks),
    )
    return OverTime(
        series=usable[0].series or usable[0].name,
        setup=setup,
        rows=_rows(usable, setup),
        notes=tuple(f"Left out: {empty_reason(subject)}." for subject in empty),
    )


def _rows(subjects: Sequence[Subject], setup: Setup) -> tuple[VersionFacts, ...]:
    groups: dict[str, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(subject.version or _NO_VERSION, []).append(subject)
    merged = [_merged(version, group) for version, group in groups.items()]
    metric = setup.primary
    changes = decided(
        [contrast(before, after, metric, setup) for before, after in pairwise(merged)],
        setup,
    )
    return tuple(
        VersionFacts(
            version=version,
            experiments=tuple(groups[version]),
            trials=len(trial_values(subject.trials, metric)),
            mean=mean_of(subject.trials, metric, setup.level, setup.tasks),
            change=change,
        )
        for version, subject, change in zip(groups, merged, (None, *changes), strict=True)
    )


def _merged(version: str, group: Sequence[Subject]) -> Subject:
    trials = tuple(trial for subject in group for trial in subject.trials)
    return Subject(id=f"{group[0].id} {version}", name=version, trials=trials)
