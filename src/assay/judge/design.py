"""Checks of the design of a comparison, made before any result is read.

- Differences between two configurations, key by key. The task side is what was to be done: if
  it differs, outcomes may differ for that reason alone. The subject side is what is compared.
  A setting that one side did not record is not compared.
- Duplicate trials, and subjects that consist of the same trials. A copy is not new evidence: it
  counts once and is reported. Trials in one world with one seed are replicates, not copies;
  `matching` averages them.

Opens no files.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.core.canonical_json import canonical_json, content_hash
from assay.core.settings import to_stored
from assay.core.text import counted, printable, unknown_name
from assay.crafter.difficulty import DIFFICULTIES
from assay.crafter.rules import TASK
from assay.errors import UsageError
from assay.judge.results import DesignDifference
from assay.judge.subjects import SUBJECT_METRICS, Subject, TrialOutcome, Trials

_LONGEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two configurations."""

    what: str
    """A key of the configuration, with dots between levels, or `model`."""
    before: str
    """Short and safe to print; a long text is given by its start, length and hash."""
    after: str

    def __str__(self) -> str:
        return f"{self.what}: {self.before} -> {self.after}"


def changes_between(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    unlogged: Collection[str] = (),
    path: str = "",
) -> list[Change]:
    """Return the differences between two configurations, in the order of the keys.

    Keys in `unlogged` are skipped.
    """
    found: list[Change] = []
    for key in dict.fromkeys((*before, *after)):
        if key in unlogged:
            continue
        old, new = before.get(key), after.get(key)
        label = f"{path}{key}"
        if label == "difficulty" and old != new:
            found.append(Change(label, *(_difficulty(value) for value in (old, new))))
        elif isinstance(old, Mapping) and isinstance(new, Mapping):
            found += changes_between(old, new, path=f"{label}.")
        elif old != new:
            found.append(Change(printable(label), short_value(old), short_value(new)))
    return found


def _difficulty(value: Any) -> str:
    """Return the name of a difficulty, because its numbers are too many for a line."""
    names = (name for name, known in DIFFICULTIES.items() if value == to_stored(known))
    return next(names, None) or short_value(value)


def short_value(value: Any) -> str:
    """Format a value in a few words."""
    text = value if isinstance(value, str) else canonical_json(value).decode()
    if value is None:
        return "none"
    if len(text) <= _LONGEST_VALUE:
        return printable(text) or "''"
    start = printable(text[: _LONGEST_VALUE // 2])
    return f"{start}… ({len(text):,} letters, {content_hash(canonical_json(text))[:6]})"


TASK_SIDE = (
    *("tasks", "environment", "difficulty", "rules", "length", "curriculum", "forks"),
    *("max_turns", "max_steps", "step_limit", "token_limit", "time_limit", "total_steps"),
)
"""Settings that define the task and its limits."""
_ASIDE = frozenset(
    {
        *("models", "baselines", "name", "episodes", "seed", "seeds", "until_decided"),
        *("min_effect", "hooks", "hook_hashes", "metrics_from", "metrics_hash", "budget"),
        *("price", "cache", "database", "traces_dir", "save_traces", "arms", "agents"),
        *("agent_hashes", "replicates", "executor", "workers", "ray_address"),
        *(
            "call_patience",
            "save_detailed_results",
            "service_url",
            "service_timeout",
            "concurrent_models",
        ),
        *("max_concurrent_models", "max_concurrent_episodes", "max_connections"),
        *("experiment", "curves", "without_result", "forks", "declared", SUBJECT_METRICS),
    }
)
"""Settings that do not affect how a trial is played: other entries, place, speed, amount."""
_SHOWN = 3


def allowed_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names of settings that may differ.

    Raises:
        UsageError: A name is not a setting of the task side.
    """
    for name in names:
        if name not in TASK_SIDE:
            raise UsageError(unknown_name("setting of the task", name, TASK_SIDE))
    return frozenset(names)


def design_differences(
    baseline: Subject, candidate: Subject, allowed: Collection[str] = ()
) -> tuple[DesignDifference, ...]:
    """Return the differences between two subjects, those of the task first."""
    tasks = [
        [task for task in dict.fromkeys(Trials.of(subject.trials).tasks) if task is not None]
        for subject in (baseline, candidate)
    ]
    who, whose = _who(baseline), _who(candidate)
    found = [
        Change(name, before, after)
        for name, before in who.items()
        if before != (after := whose[name]) and before is not None and after is not None
    ]
    apart = all(tasks) and not {*tasks[0]} & {*tasks[1]}
    if apart:
        crafter = all(task.startswith(TASK) for own in tasks for task in own)
        words = [_some(task.removeprefix(TASK) for task in own) for own in tasks]
        found.append(Change("difficulty" if crafter else "tasks", *words))
    states = [subject.facts.get("forks") or [] for subject in (baseline, candidate)]
    if states[0] != states[1] and all(
        "max_turns" in one.facts for one in (baseline, candidate)
    ):
        other = "other state" if states[0] else "state"
        found.append(Change("forks", _states(states[0]), _states(states[1], other)))
    return settings_differences(
        baseline.facts, candidate.facts, allowed, found, named=apart and "difficulty"
    )


def _states(forks: Sequence[Any], name: str = "state") -> str:
    """Describe where episodes begin."""
    return counted(len(forks), name) if forks else "none (whole episodes)"


def _who(subject: Subject) -> dict[str, str | None]:
    """Return the model, the agent and the commit; None if not recorded."""
    model, agent = subject.asked_model, "ours"
    if subject.agent is not None:
        model, agent = subject.asks or "none", subject.agent
    return {"model": model, "agent": agent, "commit": subject.commit}


def settings_differences(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    allowed: Collection[str] = (),
    known: Sequence[Change] = (),
    *,
    named: str | bool = False,
) -> tuple[DesignDifference, ...]:
    """Return the differences between two configurations, the task side first.

    Args:
        before: Settings of the baseline.
        after: Settings of the candidate.
        allowed: Settings of the task side that may differ.
        known: Further known differences.
        named: A setting that `known` already covers.
    """
    # Run configurations omit some settings at their defaults; other files are just incomplete.
    whole = "max_turns" in before and "max_turns" in after
    aside = _ASIDE if whole else _ASIDE | (before.keys() ^ after.keys())
    grouped: dict[str, list[Change]] = {}
    for change in changes_between(before, after, aside):
        head, _, inner = change.what.partition(".")
        name = inner if head == "agent" else head
        # A file may keep its settings in a table of any name.
        name = next((part for part in change.what.split(".") if part in TASK_SIDE), name)
        if name != named:
            grouped.setdefault(name, []).append(change)
    changes = [*known, *(_together(name, own) for name, own in grouped.items())]
    found = [
        DesignDifference(
            change.what,
            change.before,
            change.after,
            task=change.what in TASK_SIDE,
            allowed=change.what in allowed,
        )
        for change in changes
    ]
    return tuple(sorted(found, key=lambda one: not one.task))


def _together(name: str, changes: Sequence[Change]) -> Change:
    """Combine all changes within one table into one."""
    if len(changes) == 1 and (
        name in changes[0].what.split(".") or "agent." in changes[0].what
    ):
        inner = changes[0].what.rpartition(name)[2].lstrip(".")
        label = f"{inner} " if inner else ""
        return Change(name, label + changes[0].before, label + changes[0].after)
    sides = (
        _some(f"{change.what.rpartition('.')[2]} {getattr(change, side)}" for change in changes)
        for side in ("before", "after")
    )
    return Change(name, *sides)


def _some(texts: Iterable[str]) -> str:
    listed = list(texts)
    return ", ".join(listed[:_SHOWN]) + (", …" if len(listed) > _SHOWN else "")


_SHORTEST = 3
"""Minimum length of a repeated block of trials; shorter ones repeat by chance."""
_UNSEEDED, _SEEDED = 1e-2, 1e-6
"""A list is taken for copies if it would repeat by chance with less than this probability."""
_DIGITS = 4
"""A time with more decimal digits than this is unique."""


def without_copies(subject: Subject) -> tuple[Subject, list[str]]:
    """Return the subject with each trial once, and sentences about removed copies."""
    said = []
    trials = Trials.of(subject.trials)
    if len(trials.ids) < len(trials):
        trials = _once(trials, [trial.trial_id for trial in trials], _contents)
    if twice := len(subject.trials) - len(trials):
        said.append(f"{twice:,} trials of {subject.name} are there twice; each counts once.")
    timed = _once(trials, _fine_times(trials), lambda trial: (trial.task, *_contents(trial)))
    if copied := len(trials) - len(timed):
        trials = timed
        said.append(
            f"{copied:,} trials of {subject.name} are equal to the last digit to one under"
            " another seed, its time included: they are copies, and each counts once."
        )
    if period := _period(trials):
        seeds = "whatever their seeds" if trials[0].seed is not None else "without seeds"
        said.append(
            f"The {len(trials):,} trials of {subject.name} are {len(trials) // period:,} copies"
            f" of the same {period:,}, {seeds}: they are counted as {period:,}."
        )
        trials = Trials(trials[:period])
    return replace(subject, trials=trials) if said else subject, said


def same_trials(baseline: Subject, candidate: Subject) -> str | None:
    """Return a sentence if two subjects share trials or one is a copy of the other, or None.

    Equal numbers prove a copy only where chance cannot explain them: outcomes that most trials
    have agree by chance.
    """
    ids = Trials.of(baseline.trials).ids
    if not ids.isdisjoint(Trials.of(candidate.trials).ids):
        shared = sum(trial.trial_id in ids for trial in candidate.trials)
        return f"{shared:,} of the trials stand on both sides: they are the same ones"
    if len(ids) > 1 and len(ids) == len(candidate.trials):
        both = [*zip(baseline.trials, candidate.trials, strict=True)]
        if all(_told(one) == _told(other) for one, other in both) and _no_chance(
            Trials.of(baseline.trials)
        ):
            return (
                "every number of both is the same, in every trial, and chance does not explain"
                " that: one is a copy of the other, or both play alike"
            )
    return None


def _no_chance(trials: Trials) -> bool:
    """Return whether another list of trials would hardly have the same numbers by chance."""
    if any(time is not None for time in _fine_times(trials)):
        return True
    rows = [(trial.task, *_contents(trial)) for trial in trials]
    seeded = any(trial.seed is not None for trial in trials)
    return _chance(rows, rows) < (_SEEDED if seeded else _UNSEEDED)


def _chance(
    rows: Sequence[tuple[object, ...]], repeated: Sequence[tuple[object, ...]]
) -> float:
    """Return the probability that these rows repeat, from how often each occurs in its task."""
    often, tasks = Counter(rows), Counter(row[0] for row in rows)
    return math.prod(often[row] / tasks[row[0]] for row in repeated)


def _told(trial: TrialOutcome) -> tuple[object, ...]:
    return trial.task, trial.seed, trial.state, dict(trial.values)


def _once(
    trials: Trials,
    marks: Sequence[object],
    contents: Callable[[TrialOutcome], object],
) -> Trials:
    """Keep one of the trials that have the same mark and the same contents.

    Contents are slow to compare, so they are used only for marks that occur twice. None is not
    a mark.
    """
    often = Counter(mark for mark in marks if mark is not None)
    if often.total() == len(often):
        return trials
    seen = set()
    kept = []
    for trial, own in zip(trials, marks, strict=True):
        if often[own] > 1:
            told = (own, contents(trial))
            if told in seen:
                continue
            seen.add(told)
        kept.append(trial)
    return Trials(kept)


def _contents(trial: TrialOutcome) -> tuple[object, ...]:
    return trial.state, *sorted(trial.values.items())


def _fine_times(trials: Trials) -> list[float | None]:
    """Return times that are unique to a trial; None for a trial not timed finely."""
    times = trials.column("duration_s").tolist()
    # NaN, which means no time, is not equal to itself either.
    return [time if time == time != round(time, _DIGITS) else None for time in times]


def _period(trials: Sequence[TrialOutcome]) -> int | None:
    """Return the period if the trials consist of identical blocks, or None.

    Values shared by most trials of a task repeat by chance and prove nothing. Replicates of a
    world are ignored, because they count once anyway.
    """
    seeds = {(trial.task, trial.seed) for trial in trials if trial.seed is not None}
    if 0 < len(seeds) < len(trials):
        return None
    rows: list[tuple[object, ...]] = []
    for period in range(_SHORTEST, len(trials) // 2 + 1):
        if len(trials) % period or _contents(trials[0]) != _contents(trials[period]):
            continue
        rows = rows or [(trial.task, *_contents(trial)) for trial in trials]
        if rows == rows[:period] * (len(rows) // period):
            chance = _chance(rows, rows[period:])
            return period if chance < (_SEEDED if seeds else _UNSEEDED) else None
    return None
