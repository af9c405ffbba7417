"""`assay experiments`: versions of what was played, and what came of each."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from assay.cli.database import Database, open_store
from assay.cli.experiment_words import (
    LEVEL,
    described,
    experiment_table,
    log_lines,
    logged,
    plain,
    subject_lines,
    tagged_lines,
)
from assay.cli.numbers import Whole
from assay.cli.output import Show, say, say_json, warn
from assay.errors import UsageError
from assay.traces.location import DEFAULT_DATABASE

__all__ = [
    "experiments",
    "export_experiments",
    "list_experiments",
    "log_series",
    "show_experiment",
    "tag_experiment",
]

_METRIC = "achievements"

experiments = App(
    name="experiments",
    help="""See versions of what was played, what changed between them, and what came of it.

For example:

    assay experiments log builtin/expert
""",
    help_format="plaintext",
    group="Judge",
)


@experiments.command(name="list")
def list_experiments(
    *,
    series: str | None = None,
    metric: str = _METRIC,
    limit: Annotated[Whole, Parameter(validator=Number(gte=1))] = 50,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """List experiments, the newest last: one for each model of each run.

    For example:

        assay experiments list --series builtin/expert

    Args:
        series: Only those of this series, or of the only one that starts so.
        metric: The metric whose mean is shown.
        limit: How many to list at most.
        database: The store to read.
        show: What to print.
    """
    from assay.experiments import versions

    with open_store(database, show).reading() as connection:
        _check_metric(connection, metric)
        found = versions.list_experiments(connection, series=series, metric=metric)
    chosen = found[-limit:]
    if show.json:
        rows = [plain(asdict(each)) for each in chosen]
        say_json({"total": len(found), "metric": metric, "experiments": rows})
        return 0
    if show.quiet:
        for each in chosen:
            say(each.name)
        return 0
    if not found:
        say("no experiments")
        return 0
    for line in experiment_table(chosen):
        say(line)
    say(f"mean: of {metric}, over episodes that ended as a result")
    if len(found) > limit:
        say(f"{limit} of {len(found)} experiments; --limit shows more")
    return 0


@experiments.command(name="show")
def show_experiment(
    experiment: str,
    /,
    *,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Show one experiment: where it came from, what changed before it, and all its means.

    For example:

        assay experiments show 'builtin/expert v1.0'

    Args:
        experiment: An id, a name, or the start of one.
        database: The store to read.
        show: What to print.
    """
    from assay.experiments.changelog import experiment_log
    from assay.experiments.outcomes import load_subjects
    from assay.traces.queries import resolve_experiment

    with open_store(database, show).reading() as connection:
        found = resolve_experiment(connection, experiment)
        entry = experiment_log(connection, found)
        subject = load_subjects(connection, [found])[0]
    if show.json:
        say_json(described(entry, subject))
    elif show.quiet:
        say(subject.name)
    else:
        for line in subject_lines(entry, subject):
            say(line)
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

    Its name follows the version. The next version of the series goes on from the highest
    there is: after v2.0 comes v2.1.

    For example:

        assay experiments tag 'builtin/expert v1.0' --version v2.0 --note faster

    Args:
        experiment: An id, a name, or the start of one.
        version: Such as v2.0.
        note: What to remember of this version; '' takes the old note away.
        database: The store to change.
        show: What to print.
    """
    from assay.experiments import versions
    from assay.traces.queries import resolve_experiment

    store = open_store(database, show)
    with store.reading() as connection:
        found = resolve_experiment(connection, experiment)
    with store.writing() as connection:
        tagged = versions.tag_experiment(connection, found, version=version, note=note)
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
    metric: str = _METRIC,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Tell the story of a series: version, commit, change, note and result of each experiment.

    A change is told against the experiment before it. The result is a mean with Student's
    interval at 95 %. A commit with + had changes that were not committed.

    For example:

        assay experiments log builtin/expert

    Args:
        series: The series, or the start of its name.
        metric: The metric of the result.
        database: The store to read.
        show: What to print.
    """
    from assay.experiments.changelog import series_log

    with open_store(database, show).reading() as connection:
        _check_metric(connection, metric)
        entries = series_log(connection, series, metric=metric)
    if show.json:
        rows = [logged(entry) for entry in entries]
        say_json({"metric": metric, "level": LEVEL, "experiments": rows})
        return 0
    for entry in entries:
        quiet = [f"{entry.version} {entry.name}"]
        for line in quiet if show.quiet else log_lines(entry, metric):
            say(line)
    return 0


def _check_metric(connection: Any, metric: str) -> None:
    """A metric that was asked for is in the store; the usual one need not be."""
    from assay.experiments.versions import check_metric

    if metric != _METRIC:
        check_metric(connection, metric)


@experiments.command(name="export")
def export_experiments(
    *names: str,
    output: Path = Path("experiments.json"),
    force: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Write experiments into a file that `assay compare --experiments` reads.

    It has the achievements, instances, seeds and durations of every trial with a result.

    For example:

        assay experiments export latest --output experiments.json

    Args:
        names: Experiments or runs: ids, names, or the start of one; latest is the last run.
        output: The file to write.
        force: Replace the file if it is there.
        database: The store to read.
        show: What to print.
    """
    from assay.experiments.outcome_files import write_experiments_file
    from assay.experiments.outcomes import load_subjects, resolve_subjects

    if not names:
        raise UsageError("name the experiments to write, or a run, or 'latest'")
    if output.is_dir():
        raise UsageError(f"--output {str(output)!r} is a folder; name a file in it")
    if output.exists() and not force:
        raise UsageError(
            f"{str(output)!r} is there already; name another file, or give --force"
        )
    with open_store(database, show).reading() as connection:
        subjects = load_subjects(connection, resolve_subjects(connection, names))
    left_out = write_experiments_file(output, subjects)
    if show.json:
        written = [subject.name for subject in subjects]
        say_json({"output": str(output), "experiments": written, "left_out": left_out})
    elif not show.quiet:
        say(f"{len(subjects)} experiments written to {output}")
        if left_out:
            say(f"{left_out} trials have no result, and are not in it")
    return 0
