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
from assay.cli.output import OutputOptions, print_json, print_line, print_warning
from assay.cli.tables import Whole, print_table, print_wrapped
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


def confirm_and_delete(
    delete: Callable[[bool], "Deletion"], *, dry_run: bool, yes: bool, show: OutputOptions
) -> int:
    """Print what would be deleted, ask for confirmation unless `yes`, and delete it.

    Args:
        delete: Function that deletes; with True it only returns what it would delete.
        dry_run: Only print what would be deleted.
        yes: Do not ask for confirmation.
        show: Output options.
    """
    if not dry_run and not yes:
        _print_deletion(delete(True), "would be deleted", show)
        if not sys.stdin.isatty():
            raise UsageError("nothing was deleted; confirm with --yes")
        if input("Delete it? [y/N] ").strip().lower() not in ("y", "yes"):
            print_line("nothing deleted")
            return 1
    deletion = delete(dry_run)
    if show.json:
        print_json({"deleted": not dry_run, **asdict(deletion)})
    else:
        _print_deletion(deletion, "would be deleted" if dry_run else "deleted", show)
    return 0


def _print_deletion(deletion: "Deletion", action: str, show: OutputOptions) -> None:
    if show.json:
        return
    if show.quiet:
        for session in deletion.sessions:
            print_line(session)
        return
    for kind, names in (("experiment", deletion.experiments), ("run", deletion.runs)):
        for name in names:
            print_line(f"{kind} {name}")
    print_line(
        f"{action}: {counted(len(deletion.sessions), 'episode')},"
        f" {counted(len(deletion.experiments), 'experiment')},"
        f" {counted(len(deletion.runs), 'run')}, {counted(deletion.outcomes, 'result')},"
        f" {counted(deletion.messages, 'message')} that no other episode uses,"
        f" {counted(len(deletion.files), 'file')}"
    )


LEVEL = 0.95
"""Confidence level of all intervals shown."""

HEADS = ("experiment", "series", "version", "model", "episodes", "mean", "created (UTC)")
TEXT_COLUMNS = ("experiment", "series", "version", "model", "created (UTC)")
"""Columns of `HEADS` that contain text."""
_MAX_WIDTH = 40
_SHORT_COMMIT = 12
_UNLOCKED = "unlocked/"


def format_log_entry(entry: "LogEntry", metric: str) -> list[str]:
    """Format one experiment of a series: version, commit, changes, note and result."""
    note = [f"  note    {entry.note}"] if entry.note else []
    return [
        f"{entry.version}  {entry.name}, {_format_origin(entry)}",
        *(f"  change  {change}" for change in _describe_changes(entry)),
        *note,
        f"  result  {metric} {_format_mean(_list_values(entry), metric)};"
        f" {_format_trial_count(entry)}",
    ]


def format_experiment(entry: "LogEntry", subject: "Subject") -> list[str]:
    """Format one experiment with all its means."""
    by_metric = _group_by_metric(subject)
    width = max((len(n) for n in by_metric if not n.startswith(_UNLOCKED)), default=0)
    note = [f"  note     {entry.note}"] if entry.note else []
    return [
        f"{subject.name} ({subject.id})",
        f"  series   {subject.series}, version {subject.version}",
        f"  model    {subject.model}{', baseline' if subject.baseline else ''}",
        *_format_arm(entry, subject),
        f"  run      {entry.run_id or '-'}, {_format_origin(entry)}",
        *(f"  change   {change}" for change in _describe_changes(entry)),
        *note,
        f"  trials   {_format_states(subject)}",
        *(
            f"  {name:<{width}} {_format_mean(values, name)}"
            for name, values in by_metric.items()
            if not name.startswith(_UNLOCKED)
        ),
        *(
            f"  {name} {value:.6g}, for the whole experiment"
            for name, value in subject.facts.get("subject_metrics", {}).items()
        ),
        *_format_unlocked(by_metric),
    ]


def format_tag_changes(tagged: "Tagged") -> list[str]:
    """Format the changes made by a tag."""
    pairs = (
        ("version", tagged.old_version, tagged.version),
        ("name", tagged.old_name, tagged.name),
        ("note", tagged.old_note, tagged.note),
    )
    changed = [
        f"{what}: {old or 'none'} -> {new or 'none'}" for what, old, new in pairs if old != new
    ]
    return changed or [f"{tagged.name} already has version {tagged.version}; nothing changed"]


def experiment_to_json(entry: "LogEntry", subject: "Subject") -> dict[str, Any]:
    """Return one experiment with all its means, as JSON values."""
    return {
        **log_entry_to_json(entry),
        "series": subject.series,
        "baseline": subject.baseline,
        "configuration": dict(subject.facts),
        "states": _count_states(subject),
        "metrics": {
            name: _mean_to_json(values, name)
            for name, values in _group_by_metric(subject).items()
        },
    }


def log_entry_to_json(entry: "LogEntry") -> dict[str, Any]:
    """Return one experiment of a series, as JSON values."""
    row = {
        key: value for key, value in asdict(entry).items() if key not in ("values", "worlds")
    }
    if entry.project is None:
        del row["project"]
    return {**row_to_json(row), "result": _mean_to_json(_list_values(entry))}


def row_to_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row as JSON values, with times as text."""
    return {
        key: value.isoformat() if isinstance(value, datetime) else value
        for key, value in row.items()
    }


def _format_unlocked(by_metric: Mapping[str, Sequence[tuple[str, float]]]) -> list[str]:
    counts = {
        name.removeprefix(_UNLOCKED): count
        for name, values in by_metric.items()
        if name.startswith(_UNLOCKED) and (count := sum(value for _, value in values))
    }
    if not counts:
        return []
    shown = ", ".join(f"{name} {count:g}" for name, count in counts.items())
    return [f"  unlocked, by number of trials: {shown}"]


def format_cells(experiment: "ListedExperiment") -> tuple[str, ...]:
    """Return the cells of an experiment, in the order of `HEADS`."""
    return (
        cut(experiment.name, _MAX_WIDTH),
        cut(experiment.series, _MAX_WIDTH),
        cut(experiment.version, _MAX_WIDTH),
        cut(experiment.model, _MAX_WIDTH),
        str(experiment.results)
        if experiment.results == experiment.trials
        else f"{experiment.results}/{experiment.trials}",
        "-" if experiment.mean is None else f"{experiment.mean:.2f}",
        _format_time(experiment.created_at),
    )


def _format_arm(entry: "LogEntry", subject: "Subject") -> list[str]:
    """Format the model, agent, environment and settings that are not the default."""
    agent, place = entry.arm.get("agent"), subject.facts.get("environment")
    settings = entry.arm.get("settings")
    lines = {
        "calls": entry.arm.get("model"),
        "agent": agent and f"{agent}{_format_hash(entry.arm.get('agent_hash'))}",
        "world": place and f"{place}{_format_hash(subject.facts.get('environment_hash'))}",
        "with": isinstance(settings, Mapping)
        and ", ".join(
            f"{name} {cut(str(value), _MAX_WIDTH)}" for name, value in settings.items()
        ),
    }
    return [f"  {head:<8} {text}" for head, text in lines.items() if text]


def _format_hash(sha: Any) -> str:
    return f", file {str(sha)[:_SHORT_COMMIT]}" if sha else ""


def _describe_changes(entry: "LogEntry") -> list[str]:
    if entry.previous is None:
        return ["first of its series"]
    changes = [str(change) for change in entry.changes]
    if entry.same:
        changes.append(f"same settings as {entry.previous}")
    return changes or ["a change that the configuration does not show"]


def _format_origin(entry: "LogEntry") -> str:
    """Format the time and the commits of an experiment."""
    commit = "unknown commit"
    if entry.commit is not None:
        commit = f"commit {entry.commit[:_SHORT_COMMIT]}{'+' if entry.dirty else ''}"
    if entry.project is not None:
        changed = "+" if entry.project.endswith("+") else ""
        commit += f", project at {entry.project[:_SHORT_COMMIT]}{changed}"
    return f"{_format_time(entry.created_at)} UTC, {commit}"


def _format_trial_count(entry: "LogEntry") -> str:
    without = entry.trials - len(entry.values)
    return f"{entry.trials} trials" + (f", {without} without the metric" if without else "")


_WorldValues: TypeAlias = Sequence[tuple[str, float]]
"""Values of a metric, each as (world, value)."""


def _list_values(entry: "LogEntry") -> _WorldValues:
    return [*zip(entry.worlds, entry.values, strict=True)]


def _compute_mean(values: _WorldValues, metric: str) -> "tuple[Interval, int]":
    """Return the mean over worlds with its interval, and the number of worlds."""
    from assay.judge.matching import mean_of_values

    worlds: dict[str, list[float]] = {}
    for world, value in values:
        worlds.setdefault(world, []).append(value)
    return mean_of_values([*map(fmean, worlds.values())], metric, LEVEL), len(worlds)


def _format_mean(values: _WorldValues, metric: str) -> str:
    if not values:
        return "unknown: no trial has this metric"
    mean, worlds = _compute_mean(values, metric)
    # Proportions and short times need more digits than counts.
    largest = max(abs(bound) for bound in (mean if mean.known else mean[:1]))
    digits = 2 if largest >= 0.5 or largest == 0 else 4
    point, low, high = (f"{bound:,.{digits}f}" for bound in mean)
    if not mean.known:
        return f"{point} (n 1, no interval)"
    return f"{point} [{low}, {high}] (n {worlds})"


def _mean_to_json(values: _WorldValues, metric: str = "") -> dict[str, float | int | None]:
    if not values:
        return {"mean": None, "low": None, "high": None, "n": 0}
    mean, worlds = _compute_mean(values, metric)
    low, high = (mean.low, mean.high) if mean.known else (None, None)
    return {"mean": mean.point, "low": low, "high": high, "n": worlds}


def _group_by_metric(subject: "Subject") -> dict[str, list[tuple[str, float]]]:
    values_by_metric: dict[str, list[tuple[str, float]]] = {}
    for trial in subject.trials:
        world = trial.trial_id if trial.seed is None else f"{trial.task} {trial.seed}"
        for name, value in trial.values.items():
            values_by_metric.setdefault(name, []).append((world, value))
    return values_by_metric


def _count_states(subject: "Subject") -> dict[str, int]:
    counts: dict[str, int] = {}
    for trial in subject.trials:
        counts[trial.state.value] = counts.get(trial.state.value, 0) + 1
    return counts


def _format_states(subject: "Subject") -> str:
    counts = _count_states(subject)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"


def _format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


_T = TypeVar("_T")
_DEFAULT_METRICS = ("achievements", "reward")
"""Default metrics: the first one that any experiment has is shown."""
_Metric = Annotated[
    str | None, Parameter(show_default="achievements, or reward if there are none")
]

experiments = App(
    name="experiments",
    help="""Show versions of models and agents, their changes and results.

For example:

    assay experiments log builtin/expert
""",
    help_format="plaintext",
)


def _read_first_metric(
    metric: str | None, read: Callable[[str], list[_T]], has: Callable[[_T], bool]
) -> tuple[str, list[_T]]:
    """Return the metric and its rows; the default metric is the first that any row has."""
    if metric is None:
        for name in _DEFAULT_METRICS:
            rows = read(name)
            if any(map(has, rows)):
                return name, rows
    metric = metric or _DEFAULT_METRICS[0]
    return metric, read(metric)


@experiments.command(name="list")
def list_experiments(
    *,
    series: str | None = None,
    metric: _Metric = None,
    limit: Annotated[Whole, Parameter(validator=Number(gte=1))] = 50,
    baselines: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
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
    metric, listed = _read_first_metric(
        metric,
        lambda name: list_experiments(series=series, metric=name, database=store),
        lambda experiment: experiment.mean is not None,
    )
    hidden = 0
    if series is None and not baselines and not show.json:
        all_experiments = listed
        listed = [
            experiment for experiment in all_experiments if not experiment.baseline
        ] or all_experiments
        hidden = len(all_experiments) - len(listed)
    shown = listed[-limit:]
    if show.json:
        rows = [row_to_json(asdict(experiment)) for experiment in shown]
        print_json({"total": len(listed), "metric": metric, "experiments": rows})
        return 0
    if show.quiet:
        for experiment in shown:
            print_line(experiment.name)
        return 0
    if not listed:
        print_line("no experiments")
        return 0
    print_table(HEADS, [format_cells(experiment) for experiment in shown], TEXT_COLUMNS)
    print_wrapped(f"mean: {metric} over completed episodes")
    if hidden:
        print_wrapped(f"{counted(hidden, 'baseline')} not listed; --baselines shows them")
    if len(listed) > limit:
        print_wrapped(f"{limit} of {len(listed)} experiments; --limit shows more")
    return 0


@experiments.command(name="show")
def show_experiment(
    experiment: str,
    /,
    *,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
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
        print_json(experiment_to_json(entry, subject))
    elif show.quiet:
        print_line(subject.name)
    else:
        for line in format_experiment(entry, subject):
            print_wrapped(line, indent=11)
    return 0


@experiments.command(name="tag")
def tag_experiment(
    experiment: str,
    /,
    *,
    version: str | None = None,
    note: str | None = None,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
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
        print_json(asdict(tagged))
    elif not show.quiet:
        for line in format_tag_changes(tagged):
            print_line(line)
    if tagged.others:
        others = ", ".join(tagged.others)
        print_warning(f"{others} also has version {tagged.version}, with other settings")
    return 0


@experiments.command(name="log")
def log_series(
    series: str,
    /,
    *,
    metric: _Metric = None,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
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
    metric, entries = _read_first_metric(
        metric,
        lambda name: experiment_log(series, metric=name, database=store),
        lambda entry: bool(entry.values),
    )
    if show.json:
        rows = [log_entry_to_json(entry) for entry in entries]
        print_json({"metric": metric, "level": LEVEL, "experiments": rows})
        return 0
    for entry in entries:
        quiet = [f"{entry.version} {entry.name}"]
        for line in quiet if show.quiet else format_log_entry(entry, metric):
            print_wrapped(line, indent=10)
    return 0


@experiments.command(name="export")
def export_experiments(
    *names: str,
    output: Path = Path("experiments.json"),
    force: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
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
        print_json({"output": str(output), "experiments": written, "left_out": left_out})
    elif not show.quiet:
        print_line(f"{len(written)} experiments written to {output}")
        if left_out:
            print_line(f"{left_out} trials have no result and were not written")
    return 0


@experiments.command(name="delete")
def delete_experiments(
    *names: str,
    dry_run: DryRun = False,
    yes: Yes = False,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
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
    return confirm_and_delete(
        lambda dry: delete_experiments(*names, dry_run=dry, database=store),
        dry_run=dry_run,
        yes=yes,
        show=show,
    )
