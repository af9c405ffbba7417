"""What `assay experiments` prints, as lines of text and as JSON.

Nothing here prints; whoever does makes the text of others safe to show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

from assay._util.text import cut

if TYPE_CHECKING:
    from assay.experiments.changelog import LogEntry
    from assay.experiments.versions import ListedExperiment, Tagged
    from assay.judge.subjects import Subject
    from assay.stats.intervals import Interval

__all__ = [
    "HEADS",
    "LEVEL",
    "WORDS",
    "described",
    "experiment_cells",
    "log_lines",
    "logged",
    "plain",
    "subject_lines",
    "tagged_lines",
]

LEVEL = 0.95
"""Of every interval shown."""

HEADS = ("experiment", "series", "version", "model", "episodes", "mean", "created (UTC)")
WORDS = ("experiment", "series", "version", "model", "created (UTC)")
"""The columns of `HEADS` that hold words."""
_WIDEST = 40
_SHORT_COMMIT = 12
_UNLOCKED = "unlocked/"


def log_lines(entry: "LogEntry", metric: str) -> list[str]:
    """One experiment of a series: version, commit, change, note and result."""
    note = [f"  note    {entry.note}"] if entry.note else []
    return [
        f"{entry.version}  {entry.name}, {_time(entry.created_at)} UTC, {_commit(entry)}",
        *(f"  change  {change}" for change in _changes(entry)),
        *note,
        f"  result  {metric} {_result(_earned(entry), metric)}; {_trials(entry)}",
    ]


def subject_lines(entry: "LogEntry", subject: "Subject") -> list[str]:
    """One experiment with all its means."""
    by_metric = _by_metric(subject)
    width = max((len(n) for n in by_metric if not n.startswith(_UNLOCKED)), default=0)
    note = [f"  note     {entry.note}"] if entry.note else []
    return [
        f"{subject.name} ({subject.id})",
        f"  series   {subject.series}, version {subject.version}",
        f"  model    {subject.model}{', played to compare with' if subject.baseline else ''}",
        *_arm(entry, subject),
        f"  run      {entry.run_id or '-'}, {_time(entry.created_at)} UTC, {_commit(entry)}",
        *(f"  change   {change}" for change in _changes(entry)),
        *note,
        f"  trials   {_states(subject)}",
        *(
            f"  {name:<{width}} {_result(values, name)}"
            for name, values in by_metric.items()
            if not name.startswith(_UNLOCKED)
        ),
        *(
            f"  {name} {value:.6g}, of the experiment as a whole"
            for name, value in subject.facts.get("subject_metrics", {}).items()
        ),
        *_unlocked(by_metric),
    ]


def tagged_lines(tagged: "Tagged") -> list[str]:
    """What a tag changed."""
    pairs = (
        ("version", tagged.old_version, tagged.version),
        ("name", tagged.old_name, tagged.name),
        ("note", tagged.old_note, tagged.note),
    )
    changed = [
        f"{what}: {old or 'none'} -> {new or 'none'}" for what, old, new in pairs if old != new
    ]
    return changed or [f"{tagged.name} is {tagged.version} already; nothing was changed"]


def described(entry: "LogEntry", subject: "Subject") -> dict[str, Any]:
    """One experiment with all its means, for a program to read."""
    return {
        **logged(entry),
        "series": subject.series,
        "baseline": subject.baseline,
        "configuration": dict(subject.facts),
        "states": _count(subject),
        "metrics": {
            name: _numbers(values, name) for name, values in _by_metric(subject).items()
        },
    }


def logged(entry: "LogEntry") -> dict[str, Any]:
    """One experiment of a series, for a program to read."""
    row = {
        key: value for key, value in asdict(entry).items() if key not in ("values", "worlds")
    }
    if entry.project is None:
        del row["project"]
    return {**plain(row), "result": _numbers(_earned(entry))}


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Values that JSON has, with times as text."""
    return {
        key: value.isoformat() if isinstance(value, datetime) else value
        for key, value in row.items()
    }


def _unlocked(by_metric: Mapping[str, Sequence[tuple[str, float]]]) -> list[str]:
    counts = {
        name.removeprefix(_UNLOCKED): count
        for name, earned in by_metric.items()
        if name.startswith(_UNLOCKED) and (count := sum(value for _, value in earned))
    }
    if not counts:
        return []
    shown = ", ".join(f"{name} {count:g}" for name, count in counts.items())
    return [f"  unlocked, in how many trials: {shown}"]


def experiment_cells(each: "ListedExperiment") -> tuple[str, ...]:
    """One experiment of a list, below `HEADS`."""
    return (
        cut(each.name, _WIDEST),
        cut(each.series, _WIDEST),
        cut(each.version, _WIDEST),
        cut(each.model, _WIDEST),
        str(each.results) if each.results == each.trials else f"{each.results}/{each.trials}",
        "-" if each.mean is None else f"{each.mean:.2f}",
        _time(each.created_at),
    )


def _arm(entry: "LogEntry", subject: "Subject") -> list[str]:
    """Who played and where, as far as it is not what all others do."""
    agent, place = entry.arm.get("agent"), subject.facts.get("environment")
    settings = entry.arm.get("settings")
    lines = {
        "asks": entry.arm.get("model"),
        "agent": agent and f"{agent}{_hash(entry.arm.get('agent_hash'))}",
        "world": place and f"{place}{_hash(subject.facts.get('environment_hash'))}",
        "with": isinstance(settings, Mapping)
        and ", ".join(f"{name} {cut(str(value), _WIDEST)}" for name, value in settings.items()),
    }
    return [f"  {head:<8} {text}" for head, text in lines.items() if text]


def _hash(sha: Any) -> str:
    return f", file {str(sha)[:_SHORT_COMMIT]}" if sha else ""


def _changes(entry: "LogEntry") -> list[str]:
    if entry.previous is None:
        return ["the first of its series"]
    found = [str(change) for change in entry.changes]
    if entry.same:
        found.append(f"plays as {entry.previous} did")
    return found or ["something that its configuration does not show"]


def _commit(entry: "LogEntry") -> str:
    commit = "no commit known"
    if entry.commit is not None:
        commit = f"commit {entry.commit[:_SHORT_COMMIT]}{'+' if entry.dirty else ''}"
    if entry.project is None:
        return commit
    changed = "+" if entry.project.endswith("+") else ""
    return f"{commit}, project at {entry.project[:_SHORT_COMMIT]}{changed}"


def _trials(entry: "LogEntry") -> str:
    without = entry.trials - len(entry.values)
    return f"{entry.trials} trials" + (f", {without} without it" if without else "")


_Earned: TypeAlias = Sequence[tuple[str, float]]
"""Values of a metric, each with its world."""


def _earned(entry: "LogEntry") -> _Earned:
    return [*zip(entry.worlds, entry.values, strict=True)]


def _mean(earned: _Earned, metric: str) -> "tuple[Interval, int]":
    """The mean over worlds, with its interval, and how many worlds there are."""
    from assay.judge.matching import mean_of_values

    worlds: dict[str, list[float]] = {}
    for world, value in earned:
        worlds.setdefault(world, []).append(value)
    return mean_of_values([*map(fmean, worlds.values())], metric, LEVEL), len(worlds)


def _result(earned: _Earned, metric: str) -> str:
    if not earned:
        return "not known: no trial has it"
    mean, worlds = _mean(earned, metric)
    # Shares and seconds need more digits than counts.
    largest = max(abs(bound) for bound in (mean if mean.known else mean[:1]))
    digits = 2 if largest >= 0.5 or largest == 0 else 4
    point, low, high = (f"{bound:,.{digits}f}" for bound in mean)
    if not mean.known:
        return f"{point} (n 1 gives no interval)"
    return f"{point} [{low}, {high}] (n {worlds})"


def _numbers(earned: _Earned, metric: str = "") -> dict[str, float | int | None]:
    if not earned:
        return {"mean": None, "low": None, "high": None, "n": 0}
    mean, worlds = _mean(earned, metric)
    low, high = (mean.low, mean.high) if mean.known else (None, None)
    return {"mean": mean.point, "low": low, "high": high, "n": worlds}


def _by_metric(subject: "Subject") -> dict[str, list[tuple[str, float]]]:
    found: dict[str, list[tuple[str, float]]] = {}
    for trial in subject.trials:
        world = trial.trial_id if trial.seed is None else f"{trial.task} {trial.seed}"
        for name, value in trial.values.items():
            found.setdefault(name, []).append((world, value))
    return found


def _count(subject: "Subject") -> dict[str, int]:
    counts: dict[str, int] = {}
    for trial in subject.trials:
        counts[trial.state.value] = counts.get(trial.state.value, 0) + 1
    return counts


def _states(subject: "Subject") -> str:
    counts = _count(subject)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
