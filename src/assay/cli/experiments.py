"""`assay experiments`: versions of what was played, and what came of each."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import App, Parameter
from cyclopts.validators import Number

from assay._util.text import counted
from assay.cli.database import Database, open_store
from assay.cli.deleting import DryRun, Yes, delete_when_agreed
from assay.cli.experiment_words import (
    HEADS,
    LEVEL,
    WORDS,
    described,
    experiment_cells,
    log_lines,
    logged,
    plain,
    subject_lines,
    tagged_lines,
)
from assay.cli.lists import say_prose, say_table
from assay.cli.numbers import Whole
from assay.cli.output import Show, say, say_json, warn
from assay.traces.location import DEFAULT_DATABASE

__all__ = [
    "delete_experiments",
    "experiments",
    "export_experiments",
    "list_experiments",
    "log_series",
    "show_experiment",
    "tag_experiment",
]

_T = TypeVar("_T")
_USUAL = ("achievements", "reward")
"""What is shown unless another metric is named: the first that any of them has."""
_Metric = Annotated[
    str | None, Parameter(show_default="achievements, or reward where there are none")
]

experiments = App(
    name="experiments",
    help="""See versions of models and agents, what changed between them, and their results.

For example:

    assay experiments log builtin/expert
""",
    help_format="plaintext",
    group="Judge",
)


def _first_earned(
    metric: str | None, read: Callable[[str], list[_T]], has: Callable[[_T], bool]
) -> tuple[str, list[_T]]:
    """What is read for a metric, and its name: the one given, or the first that one has."""
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
    baselines: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """List experiments, the newest last: one for each model of each run.

    For example:

        assay experiments list --series builtin/expert

    Args:
        series: Only experiments of this series; the start of its name is enough.
        metric: The metric whose mean is shown.
        limit: List at most this many.
        baselines: Also list the baselines that were added to runs; --json always does.
        database: The store to read.
        show: What to print.
    """
    from assay import api

    store = open_store(database, show)
    metric, listed = _first_earned(
        metric,
        lambda name: api.list_experiments(series=series, metric=name, database=store),
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
    """Show one experiment: its origin, what changed in it, and the mean of every metric.

    For example:

        assay experiments show 'builtin/expert v1.0'

    Args:
        experiment: An id, a name, or the start of one.
        database: The store to read.
        show: What to print.
    """
    from assay import api

    entry, subject = api.show_experiment(experiment, database=open_store(database, show))
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
    """Give an experiment a version or a note of your own.

    The name of the experiment changes with its version. New versions of the series count up
    from the highest one: after v2.0 comes v2.1.

    For example:

        assay experiments tag 'builtin/expert v1.0' --version v2.0 --note faster

    Args:
        experiment: An id, a name, or the start of one.
        version: The version, such as v2.0.
        note: A note about this version; '' removes the note.
        database: The store to change.
        show: What to print.
    """
    from assay import api

    tagged = api.tag_experiment(
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
    """Show the history of a series: version, commit, changes, note and result.

    Changes are those since the experiment before. The result is a mean with an interval at
    about 95 % (Student's t). A + after a commit marks uncommitted changes.

    For example:

        assay experiments log builtin/expert

    Args:
        series: The series, or the start of its name.
        metric: The metric of the result.
        database: The store to read.
        show: What to print.
    """
    from assay import api

    store = open_store(database, show)
    metric, entries = _first_earned(
        metric,
        lambda name: api.experiment_log(series, metric=name, database=store),
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
    force: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Write experiments to a file that 'assay compare --experiments' reads.

    The file has the achievements, instances, seeds and durations of all completed episodes.

    For example:

        assay experiments export latest --output experiments.json

    Args:
        names: Experiments or runs: ids, names, or the start of one. 'latest' is the last run.
        output: The file to write.
        force: Replace an existing file.
        database: The store to read.
        show: What to print.
    """
    from assay import api

    written, left_out = api.export_experiments(
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

    When the last experiment of a run is deleted, so is the run. A run that is still being
    played cannot be deleted.

    For example:

        assay experiments delete latest --dry-run

    Args:
        names: Experiments or runs: ids, names, or the start of one. 'latest' is the last run.
        dry_run: Only print what would be deleted.
        yes: Delete without asking.
        database: The store to change.
        show: What to print.
    """
    from assay import api

    store = open_store(database, show)
    return delete_when_agreed(
        lambda dry: api.delete_experiments(*names, dry_run=dry, database=store),
        dry_run=dry_run,
        yes=yes,
        show=show,
    )
