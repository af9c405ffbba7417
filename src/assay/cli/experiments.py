"""`assay experiments`: list, show, tag, export and delete experiments.

`assay traces delete` also uses `delete_when_agreed`.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from cyclopts import App, Parameter
from cyclopts.validators import Number

from assay.cli.options import Database, Flag, open_store
from assay.cli.output import Show, say, say_json, warn
from assay.cli.tables import Whole, say_prose, say_table
from assay.core.text import counted, cut
from assay.errors import UsageError
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.judge.subjects import Subject
    from assay.stats.intervals import Interval
    from assay.store.deletion import Deletion
    from assay.store.versions import ListedExperiment, LogEntry, Tagged

DryRun = Annotated[bool, Parameter(name="--dry-run", negative="", show_default=False)]
Yes = Annotated[bool, Parameter(name="--yes", negative="", show_default=False)]


def delete_when_agreed(
    do: Callable[[bool], "Deletion"], *, dry_run: bool, yes: bool, show: Show
) -> int:
    """Print what would be deleted, ask for confirmation unless `yes`, and delete it.

    Args:
        do: Function that deletes; with True it only returns what it would delete.
        dry_run: Only print what would be deleted.
        yes: Do not ask for confirmation.
        show: Output options.
    """
    if not dry_run and not yes:
        _tell(do(True), "would be deleted", show)
        if not sys.stdin.isatty():
            raise UsageError("nothing is deleted yet; give --yes to delete it")
        if input("Delete it? [y/N] ").strip().lower() not in ("y", "yes"):
            say("nothing deleted")
            return 1
    done = do(dry_run)
    if show.json:
        say_json({"deleted": not dry_run, **asdict(done)})
    else:
        _tell(done, "would be deleted" if dry_run else "deleted", show)
    return 0


def _tell(done: "Deletion", what: str, show: Show) -> None:
    if show.json:
        return
    if show.quiet:
        for session in done.sessions:
            say(session)
        return
    for kind, names in (("experiment", done.experiments), ("run", done.runs)):
        for name in names:
            say(f"{kind} {name}")
    say(
        f"{what}: {counted(len(done.sessions), 'episode')},"
        f" {counted(len(done.experiments), 'experiment')}, {counted(len(done.runs), 'run')},"
        f" {counted(done.outcomes, 'result')}, {counted(done.messages, 'message')} that no"
        f" other episode uses, {counted(len(done.files), 'file')}"
    )


LEVEL = 0.95
"""Confidence level of all intervals shown."""

HEADS = ("experiment", "series", "version", "model", "episodes", "mean", "created (UTC)")
WORDS = ("experiment", "series", "version", "model", "created (UTC)")
"""Columns of `HEADS` that contain text."""
_WIDEST = 40
_SHORT_COMMIT = 12
_UNLOCKED = "unlocked/"


def log_lines(entry: "LogEntry", metric: str) -> list[str]:
    """Format one experiment of a series: version, commit, changes, note and result."""
    note = [f"  note    {entry.note}"] if entry.note else []
    return [
        f"{entry.version}  {entry.name}, {_time(entry.created_at)} UTC, {_commit(entry)}",
        *(f"  change  {change}" for change in _changes(entry)),
        *note,
        f"  result  {metric} {_result(_earned(entry), metric)}; {_trials(entry)}",
    ]


def subject_lines(entry: "LogEntry", subject: "Subject") -> list[str]:
    """Format one experiment with all its means."""
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
    """Format the changes made by a tag."""
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
    """Return one experiment with all its means, as JSON values."""
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
    """Return one experiment of a series, as JSON values."""
    row = {
        key: value for key, value in asdict(entry).items() if key not in ("values", "worlds")
    }
    if entry.project is None:
        del row["project"]
    return {**plain(row), "result": _numbers(_earned(entry))}


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row as JSON values, with times as text."""
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
    """Return the cells of an experiment, in the order of `HEADS`."""
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
    """Format the model, agent, environment and settings that are not the default."""
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
"""Values of a metric, each as (world, value)."""


def _earned(entry: "LogEntry") -> _Earned:
    return [*zip(entry.worlds, entry.values, strict=True)]


def _mean(earned: _Earned, metric: str) -> "tuple[Interval, int]":
    """Return the mean over worlds with its interval, and the number of worlds."""
    from assay.judge.matching import mean_of_values

    worlds: dict[str, list[float]] = {}
    for world, value in earned:
        worlds.setdefault(world, []).append(value)
    return mean_of_values([*map(fmean, worlds.values())], metric, LEVEL), len(worlds)


def _result(earned: _Earned, metric: str) -> str:
    if not earned:
        return "not known: no trial has it"
    mean, worlds = _mean(earned, metric)
    # Proportions and short times need more digits than counts.
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


_T = TypeVar("_T")
_USUAL = ("achievements", "reward")
"""Default metrics: the first one that any experiment has is shown."""
_Metric = Annotated[
    str | None, Parameter(show_default="achievements, or reward where there are none")
]

experiments = App(
    name="experiments",
    help="""Show versions of models and agents, their changes and results.

For example:

    assay experiments log builtin/expert
""",
    help_format="plaintext",
)


def _first_earned(
    metric: str | None, read: Callable[[str], list[_T]], has: Callable[[_T], bool]
) -> tuple[str, list[_T]]:
    """Return the metric and its rows; the default metric is the first that any row has."""
    if metric is None:
        for name in _USUAL:
            rows = read(name)
            if any(map(has, rows)):
                return name, rows
    metric = metric or _USUAL[0]
    return metric, read(metric)


@experiments.command(name="list")
def list_experiments(
    *,
    series: str | None = None,
    metric: _Metric = None,
    limit: Annotated[Whole, Parameter(validator=Number(gte=1))] = 50,
    baselines: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """List experiments, one per model and run, newest last.

    For example:

        assay experiments list --series builtin/expert

    Args:
        series: List only experiments of this series; the start of its name is enough.
        metric: Metric whose mean is shown.
        limit: Maximum number of experiments.
        baselines: Also list baselines that were added to runs; --json always lists them.
        database: Database to read.
        show: Output options.
    """
    from assay.api.comparison import list_experiments

    store = open_store(database, show)
    metric, listed = _first_earned(
        metric,
        lambda name: list_experiments(series=series, metric=name, database=store),
        lambda experiment: experiment.mean is not None,
    )
    beside = 0
    if series is None and not baselines and not show.json:
        everybody = listed
        listed = [one for one in everybody if not one.baseline] or everybody
        beside = len(everybody) - len(listed)
    chosen = listed[-limit:]
    if show.json:
        rows = [plain(asdict(experiment)) for experiment in chosen]
        say_json({"total": len(listed), "metric": metric, "experiments": rows})
        return 0
    if show.quiet:
        for experiment in chosen:
            say(experiment.name)
        return 0
    if not listed:
        say("no experiments")
        return 0
    say_table(HEADS, [experiment_cells(experiment) for experiment in chosen], WORDS)
    say_prose(f"mean: of {metric}, over episodes that completed")
    if beside:
        say_prose(f"{counted(beside, 'baseline')} not listed; --baselines shows them")
    if len(listed) > limit:
        say_prose(f"{limit} of {len(listed)} experiments; --limit shows more")
    return 0


@experiments.command(name="show")
def show_experiment(
    experiment: str,
    /,
    *,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Show one experiment: origin, changes, and the mean of each metric.

    For example:

        assay experiments show 'builtin/expert v1.0'

    Args:
        experiment: Id or name, or the start of one.
        database: Database to read.
        show: Output options.
    """
    from assay.api.comparison import show_experiment

    entry, subject = show_experiment(experiment, database=open_store(database, show))
    if show.json:
        say_json(described(entry, subject))
    elif show.quiet:
        say(subject.name)
    else:
        for line in subject_lines(entry, subject):
            say_prose(line, indent=11)
    return 0


@experiments.command(name="tag")
def tag_experiment(
    experiment: str,
    /,
    *,
    version: str | None = None,
    note: str | None = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Set the version or the note of an experiment.

    The name of the experiment changes with its version. New versions of the series continue
    from the highest one: v2.1 follows v2.0.

    For example:

        assay experiments tag 'builtin/expert v1.0' --version v2.0 --note faster

    Args:
        experiment: Id or name, or the start of one.
        version: Version, such as v2.0.
        note: Note about this version; '' removes it.
        database: Database to change.
        show: Output options.
    """
    from assay.api.comparison import tag_experiment

    tagged = tag_experiment(
        experiment, version=version, note=note, database=open_store(database, show)
    )
    if show.json:
        say_json(asdict(tagged))
    elif not show.quiet:
        for line in tagged_lines(tagged):
            say(line)
    if tagged.others:
        others = ", ".join(tagged.others)
        warn(f"{others} has the version {tagged.version} too, and was played otherwise")
    return 0


@experiments.command(name="log")
def log_series(
    series: str,
    /,
    *,
    metric: _Metric = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Show the history of a series: versions, changes, notes and results.

    Changes are relative to the previous experiment. The result is a mean with an approximate
    95 % CI (Student's t). A + after a commit means that there were uncommitted changes.

    For example:

        assay experiments log builtin/expert

    Args:
        series: Name of the series, or the start of it.
        metric: Metric of the result.
        database: Database to read.
        show: Output options.
    """
    from assay.api.comparison import experiment_log

    store = open_store(database, show)
    metric, entries = _first_earned(
        metric,
        lambda name: experiment_log(series, metric=name, database=store),
        lambda entry: bool(entry.values),
    )
    if show.json:
        rows = [logged(entry) for entry in entries]
        say_json({"metric": metric, "level": LEVEL, "experiments": rows})
        return 0
    for entry in entries:
        quiet = [f"{entry.version} {entry.name}"]
        for line in quiet if show.quiet else log_lines(entry, metric):
            say_prose(line, indent=10)
    return 0


@experiments.command(name="export")
def export_experiments(
    *names: str,
    output: Path = Path("experiments.json"),
    force: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Write experiments to a file for 'assay compare --experiments'.

    The file has the achievements, instances, seeds and durations of all completed episodes.

    For example:

        assay experiments export latest --output experiments.json

    Args:
        names: Experiments or runs: ids, names, or the start of one. 'latest' is the last run.
        output: Write the experiments to this file.
        force: Replace an existing file.
        database: Database to read.
        show: Output options.
    """
    from assay.api.comparison import export_experiments

    written, left_out = export_experiments(
        names, output, force=force, database=open_store(database, show)
    )
    if show.json:
        say_json({"output": str(output), "experiments": written, "left_out": left_out})
    elif not show.quiet:
        say(f"{len(written)} experiments written to {output}")
        if left_out:
            say(f"{left_out} trials have no result, and are not in it")
    return 0


@experiments.command(name="delete")
def delete_experiments(
    *names: str,
    dry_run: DryRun = False,
    yes: Yes = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Delete experiments with all their episodes, results and files.

    If the last experiment of a run is deleted, the run is deleted too. A run that is still in
    progress cannot be deleted.

    For example:

        assay experiments delete latest --dry-run

    Args:
        names: Experiments or runs: ids, names, or the start of one. 'latest' is the last run.
        dry_run: Only print what would be deleted.
        yes: Delete without confirmation.
        database: Database to change.
        show: Output options.
    """
    from assay.api.comparison import delete_experiments

    store = open_store(database, show)
    return delete_when_agreed(
        lambda dry: delete_experiments(*names, dry_run=dry, database=store),
        dry_run=dry_run,
        yes=yes,
        show=show,
    )
