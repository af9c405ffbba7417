"""One model of a results file as a subject of a comparison.

Whatever is wrong with an entry is a UsageError. Opens no file.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from assay._util.settings import written
from assay._util.text import printable
from assay.crafter.difficulty import DIFFICULTIES
from assay.crafter.rules import TASK
from assay.errors import UsageError
from assay.exchange.results import RESULTS_FORMAT
from assay.experiments.checked import (
    checked_label,
    checked_list,
    checked_numbers,
    checked_seeds,
    shown,
)
from assay.judge.subjects import Subject, TrialOutcome
from assay.types import TrialState

__all__ = ["subject_of_results", "values_at"]

_NAME = re.compile(r"(?P<series>.+) (?P<version>v\d+\.\d+)( #\d+)?")


def subject_of_results(
    entry: dict[str, Any], file: Mapping[str, Any], model: str, source: str
) -> Subject:
    """Read one entry of `models`; `file` is what stands around it, empty if nothing does."""
    name = checked_label(entry.get("name", model), f"{source!r}", "name")
    where = f"model {printable(model)!r} of {source!r}" if file else f"{source!r}"
    for key in ("seeds", "metrics"):
        if key not in entry:
            raise UsageError(
                f"{where} has no {key}; a results file has name, seeds, and metrics with a "
                "value for each seed"
            )
    seeds = checked_seeds(checked_list(entry["seeds"], where, "seeds"), where, "seeds")
    metrics = _metrics(entry["metrics"], len(seeds), where)
    run, origin = (
        _mapping(file.get("run")),
        _mapping(_mapping(file.get("run")).get("provenance")),
    )
    parts = _NAME.fullmatch(name) if file.get("format") == RESULTS_FORMAT else None
    commit = origin.get("commit")
    if isinstance(commit, str) and origin.get("dirty") is True:
        commit = f"{commit}+"
    facts = dict(_mapping(file.get("config")))
    used = {"name", "seeds", "metrics", "episodes", "without_result", "baseline"}
    facts |= {key: value for key, value in entry.items() if key not in used}
    return Subject(
        id=f"{source}#{model}" if file else source,
        name=name,
        model=model if file else None,
        series=parts["series"] if parts else None,
        version=parts["version"] if parts else None,
        run_id=run["id"] if isinstance(run.get("id"), str) else None,
        created_at=_moment(run.get("created_at")),
        commit=commit if isinstance(commit, str) else None,
        baseline=entry.get("baseline") is True,
        source=source,
        facts=facts,
        trials=tuple(
            _trials_of_results(
                entry, seeds, metrics, f"{source}#{model}", _difficulty(facts.get("difficulty"))
            )
        ),
    )


def values_at(metrics: Mapping[str, list[float | None]], at: int) -> dict[str, float]:
    """The numbers of one trial, by metric; those it does not have are left out."""
    return {
        name: value for name, values in metrics.items() if (value := values[at]) is not None
    }


def _metrics(value: Any, count: int, where: str) -> dict[str, list[float | None]]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} has {shown(value)} as metrics; give a list for each metric")
    metrics: dict[str, list[float | None]] = {}
    for name, values in value.items():
        label = f"metric {printable(name)!r}"
        metrics[name] = checked_numbers(checked_list(values, where, label), where, label)
        if len(values) != count:
            raise UsageError(
                f"{where} has {count} seeds and {len(values)} values of {label}; give a value "
                "for each seed, and null where there is none"
            )
    return metrics


def _trials_of_results(
    entry: Mapping[str, Any],
    seeds: list[int | None],
    metrics: Mapping[str, list[float | None]],
    prefix: str,
    played: str | None,
) -> Iterator[TrialOutcome]:
    episodes = entry.get("episodes")
    if not isinstance(episodes, list) or len(episodes) != len(seeds):
        episodes = [None] * len(seeds)
    values = [values_at(metrics, at) for at in range(len(seeds))]
    missing = sum(not earned for earned in values)
    reasons = entry.get("without_result")
    if not isinstance(reasons, list) or len(reasons) != missing:
        reasons = [None] * missing
    reason = iter(reasons)
    met: Counter[int | None] = Counter()
    for at, (seed, earned) in enumerate(zip(seeds, values, strict=True)):
        met[seed] += 1
        about = {**(_mapping({} if earned else next(reason))), **_mapping(episodes[at])}
        difficulty = about.get("difficulty")
        task = f"{TASK}{difficulty}" if isinstance(difficulty, str) else played
        trial_id = about.get("session_id")
        yield TrialOutcome(
            trial_id=trial_id if isinstance(trial_id, str) else f"{prefix} #{at + 1}",
            pair=None if seed is None else str(seed) if task is None else f"{task} {seed}",
            task=task,
            seed=seed,
            replicate=0 if seed is None else met[seed] - 1,
            state=TrialState.RESULT if earned else _state(about.get("state")),
            values=earned,
            ended=said if isinstance(said := about.get("stop_reason"), str) else None,
            unlock_steps=_steps(about.get("achievements")),
        )


def _steps(unlocked: Any) -> tuple[int, ...]:
    """The steps of an episode's achievements, as far as a file says them."""
    return tuple(sorted(step for step in _mapping(unlocked).values() if type(step) is int))


def _difficulty(numbers: Any) -> str | None:
    """The task of a run, from the numbers of its worlds; None if they have no name."""
    named = (name for name, one in DIFFICULTIES.items() if numbers == written(one))
    return next((f"{TASK}{name}" for name in named), None)


def _state(value: Any) -> TrialState:
    if value == TrialState.INFRASTRUCTURE.value:
        return TrialState.INFRASTRUCTURE
    return TrialState.FAILURE


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _moment(seconds: Any) -> datetime | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None
