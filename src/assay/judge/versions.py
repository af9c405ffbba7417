"""A metric over the versions of one series.

The experiments of a version are pooled. Trials in the same world are averaged, so playing a
version again makes its mean more precise only if other worlds were played. Each version is
compared with the previous one.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from assay.errors import UsageError
from assay.judge.caveats import empty_reason, pair_notes
from assay.judge.comparison import check_choices, common_metrics, task_rule
from assay.judge.design import allowed_names, without_copies
from assay.judge.matching import mean_of, trial_values
from assay.judge.missing import judged
from assay.judge.outcomes import merge_declared
from assay.judge.results import Contrast, Setup, TaskRule
from assay.judge.subjects import Subject
from assay.stats.intervals import Interval

_NO_VERSION = "(no version)"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """Results of one version of a series."""

    version: str
    experiments: tuple[Subject, ...]
    trials: int
    mean: Interval
    change: Contrast | None
    """Contrast with the previous version; None for the first."""


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
    allow_different: Collection[str] = (),
    lower_is_better: Collection[str] = (),
    higher_is_better: Collection[str] = (),
) -> OverTime:
    """Compare the successive versions of a series in one metric.

    Args:
        subjects: The experiments of the series, the oldest first.
        metric: The metric; by default achievements, or the first that all have.
        level: Confidence level of the intervals.
        seed: Seed of the random generator.
        tasks: Rule for several tasks, as in `compare`.
        allow_different: Settings of the task that may differ, as in `compare`.
        lower_is_better: User-defined metrics where lower values are better.
        higher_is_better: User-defined metrics where higher values are better.

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
    declared = merge_declared(
        (subject.outcomes for subject in usable), higher_is_better, lower_is_better
    )
    usable = [replace(subject, outcomes=declared) for subject in usable]
    setup = Setup(
        metrics=chosen[:1],
        baseline=usable[0].id,
        level=level,
        seed=seed,
        outcomes=declared,
        tasks=task_rule(tasks),
        allow_different=allowed_names(allow_different),
    )
    merged, copies = _merged(usable)
    changes = judged(pairwise(merged), chosen[0], setup)
    return OverTime(
        series=usable[0].series or usable[0].name,
        setup=setup,
        rows=tuple(
            VersionFacts(
                version=subject.name,
                experiments=tuple(_of_version(usable, subject.name)),
                trials=len(trial_values(subject.trials, chosen[0])),
                mean=mean_of(
                    subject.trials, subject.outcome(chosen[0]), setup.level, setup.tasks
                ),
                change=change,
            )
            for subject, change in zip(merged, (None, *changes), strict=True)
        ),
        notes=(
            *(f"Left out: {empty_reason(subject)}." for subject in empty),
            *copies,
            *pair_notes(changes, {subject.id: subject for subject in merged}),
        ),
    )


def _of_version(subjects: Sequence[Subject], version: str) -> list[Subject]:
    return [subject for subject in subjects if (subject.version or _NO_VERSION) == version]


def _merged(subjects: Sequence[Subject]) -> tuple[list[Subject], list[str]]:
    """Merge the experiments of each version; also return sentences about removed copies."""
    merged, said = [], []
    for version in dict.fromkeys(subject.version or _NO_VERSION for subject in subjects):
        group = _of_version(subjects, version)
        trials = tuple(trial for subject in group for trial in subject.trials)
        # Interim analyses are valid only for the trials they were made on.
        alone = len(group) == 1
        subject, copies = without_copies(
            replace(
                group[0],
                name=version,
                trials=trials,
                looks=group[0].looks if alone else (),
                run_id=group[0].run_id if alone else None,
            )
        )
        merged.append(subject)
        said += copies
    return merged, said
