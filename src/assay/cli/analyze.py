"""`assay analyze`: summaries of many episodes in tables and figures."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from assay.cli.options import Database, Flag, Given, add_commands, open_store, option_groups
from assay.cli.output import (
    OutputOptions,
    print_json,
    print_line,
    print_report,
    show_compilation,
    show_progress_bar,
)
from assay.cli.tables import Whole
from assay.errors import UsageError
from assay.store.location import DEFAULT_DATABASE

_EPISODES_GROUP = Group("Which episodes", sort_key=2)


_WITH_EPISODE_FILTERS = option_groups(
    {"filters": _EPISODES_GROUP}, filters="assay.store.options:SessionGroups"
)


@Parameter(name="*", group=_EPISODES_GROUP)
@dataclass(frozen=True, kw_only=True)
class EpisodeSource:
    """Source of the episodes."""

    traces: Annotated[list[Path] | None, Parameter(negative="")] = None
    """Read these folders or files of traces instead of the database."""
    database: Annotated[Database, Parameter(group=_EPISODES_GROUP)] = DEFAULT_DATABASE
    """Database to read, or a snapshot of one."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Output files of an analysis, and the amount of printed detail."""

    output: Annotated[list[Path] | None, Parameter(negative="")] = None
    """Write the analysis to these files; the extension sets the format."""
    detail: Flag = False
    """Print all tables and lists in full, instead of an extract."""


_DEFAULT_SOURCE, _DEFAULT_REPORT = EpisodeSource(), ReportOptions()

analyze = App(
    name="analyze",
    help="""Summarise many episodes in tables and figures.

Each command reads the database, or a folder of traces given as its first argument.
--output writes the analysis to files: .html, .md, .json or .csv for a report, .png or
.svg for its figure.

For example:

    assay analyze achievements --output achievements.html
    assay analyze quality traces_multi_model
""",
    help_format="plaintext",
)

_ARGUMENTS = """

Args:
    source: Folder or file of traces to read instead of the database.
    filters: Filters for the episodes.
    source_options: Source of the episodes.
    report: Output files and detail.
    show: Output options.
"""


def _make_command(name: str, about: str) -> Callable[..., int]:
    """Build a command whose only options are filters for episodes, and output."""

    @_WITH_EPISODE_FILTERS
    def command(
        source: Path | None = None,
        *,
        filters: Given,
        source_options: EpisodeSource = _DEFAULT_SOURCE,
        report: ReportOptions = _DEFAULT_REPORT,
        show: OutputOptions = OutputOptions(),
    ) -> int:
        from assay.api import analyze

        return _run_and_print(
            getattr(analyze, name), source, report, source_options, show, **filters
        )

    command.__doc__ = about + _ARGUMENTS
    command.__name__ = command.__qualname__ = name
    return command


achievements = _make_command(
    "achievements",
    """Show how often and how early each achievement is unlocked.

Human players and the random policy of the Crafter paper are shown for comparison.
The report also lists what was missing for the next achievement at the end of the
episodes.

For example:

    assay analyze achievements --output achievements.png""",
)

deaths = _make_command(
    "deaths",
    """Show causes of death, survival times, and the last actions.

The cause is a zombie, an arrow, lava, thirst, hunger or fatigue. Episodes that
ended in death are replayed to find their last steps.

For example:

    assay analyze deaths --model builtin/forager --output deaths.html""",
)

hooks = _make_command(
    "hooks",
    """Show how often each hook fires, by model and by turn.

The report also shows which hooks fire in the same episodes, on which actions, and
when each hook fires first.

For example:

    assay analyze hooks --traces traces_multi_model --output hooks.png""",
)

actions = _make_command(
    "actions",
    """Show which actions models take, which make progress, and waste.

Waste has four kinds: actions without effect, actions ignored while asleep, actions
that do not exist, and malformed replies.

For example:

    assay analyze actions --output action_patterns.png""",
)

costs = _make_command(
    "costs",
    """Show the cost of results in dollars and tokens.

Costs are reported by model, by achievement and by turn, with cached and reasoning
tokens listed separately. Models are on the cost/quality frontier if no other model
is both cheaper and better.

For example:

    assay analyze costs --run latest --output costs.html""",
)


@_WITH_EPISODE_FILTERS
def seeds(
    source: Path | None = None,
    *,
    metric: str | None = None,
    filters: Given,
    source_options: EpisodeSource = _DEFAULT_SOURCE,
    report: ReportOptions = _DEFAULT_REPORT,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Show how results depend on the world, and which worlds separate models.

    The variance of results is split into shares of the world, the model, their
    interaction and the remainder. Outlier worlds are shown as maps, with the distance to
    each resource. Use --seeds to select worlds.

    For example:

        assay analyze seeds --seeds 42,43,44,45 --output seed_report.json

    Args:
        source: Folder or file of traces to read instead of the database.
        metric: achievements, reward, steps or invalid_rate; the default is achievements, or
            reward in environments without them.
        filters: Filters for the episodes.
        source_options: Source of the episodes.
        report: Output files and detail.
        show: Output options.
    """
    from assay.api import analyze

    return _run_and_print(
        analyze.seeds, source, report, source_options, show, metric=metric, **filters
    )


@_WITH_EPISODE_FILTERS
def enhanced_hooks(
    source: Path | None = None,
    *,
    enhancements: Path | None = None,
    landmark: Whole | None = None,
    schema: Flag = False,
    filters: Given,
    source_options: EpisodeSource = _DEFAULT_SOURCE,
    report: ReportOptions = _DEFAULT_REPORT,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Apply hooks from a file to stored episodes, and show associations.

    Episodes are replayed, so that a hook can test the inventory, nearby objects, and day
    or night. Episodes that last longer than the landmark, a step that is fixed in advance,
    are divided by whether the hook has fired by then, and their results after the landmark
    are compared. This shows an association, not a causal effect.

    For example:

        assay analyze enhanced-hooks --enhancements enhanced_hooks.json --landmark 100

    Args:
        source: Folder or file of traces to read instead of the database.
        enhancements: JSON file of hooks.
        landmark: Step at which episodes are divided; choose it before you see results.
        schema: Print the JSON schema of the hook file.
        filters: Filters for the episodes.
        source_options: Source of the episodes.
        report: Output files and detail.
        show: Output options.
    """
    from assay.api import analyze

    if schema:
        print_json(analyze.hook_schema())
        return 0
    if enhancements is None:
        raise UsageError(
            "--enhancements FILE is missing; --schema prints the file format. An example is"
            ' {"hooks": [{"name": "thirsty", "when": {"item": "drink", "at_most": 3}}]}'
        )
    with show_progress_bar(show, "replaying") as progress:
        result = _run_analysis(
            analyze.enhanced_hooks,
            source,
            report,
            source_options,
            show,
            progress=progress,
            enhancements=enhancements,
            landmark=landmark,
            **filters,
        )
    return _print_analysis(result, report, show)


quality = _make_command(
    "quality",
    """Score every trace from 0 to 1 as training data, with reasons.

The score is progress x (1 - waste) x (1 - loops) x (1 - unusable replies). The
report lists the best and the worst traces, and near duplicates.

For example:

    assay analyze quality --run latest --output quality.html""",
)


def training(
    *,
    job_ids: Annotated[list[str] | None, Parameter(negative="", show_default="latest")] = None,
    report: ReportOptions = _DEFAULT_REPORT,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Compare the training curves of fine-tuning jobs.

    The report has losses, token accuracy and learning rate by step, the speed, and a check
    for overfitting: a validation loss that rises while the training loss falls.

    For example:

        assay analyze training --job-ids ftjob-abc123,ftjob-def456 --output training.html

    Args:
        job_ids: Job ids, or starts of ids, separated by commas.
        report: Output files and detail.
        database: Database with the jobs.
        show: Output options.
    """
    from assay.api import analyze
    from assay.report.files import check_file_extensions

    check_file_extensions(tuple(report.output or ()), images=True)
    names = ",".join(job_ids or ["latest"])
    result = analyze.training(names, database=open_store(database, show))
    return _print_analysis(result, report, show)


def _run_and_print(
    function: Any,
    source: Path | None,
    report: ReportOptions,
    source_options: EpisodeSource,
    show: OutputOptions,
    **choices: Any,
) -> int:
    return _print_analysis(
        _run_analysis(function, source, report, source_options, show, **choices), report, show
    )


def _run_analysis(
    function: Any,
    source: Path | None,
    report: ReportOptions,
    source_options: EpisodeSource,
    show: OutputOptions,
    **choices: Any,
) -> Any:
    from assay.report.files import check_file_extensions

    check_file_extensions(tuple(report.output or ()), images=True)
    with show_compilation(show):
        paths = [*([] if source is None else [source]), *(source_options.traces or ())]
        return function(
            paths or None, database=open_store(source_options.database, show), **choices
        )


def _print_analysis(result: Any, report: ReportOptions, show: OutputOptions) -> int:
    """Write and print the result of an analysis."""
    from assay.analyses.episodes import analysis_document
    from assay.report.files import write_document

    paths = tuple(report.output or ())
    document = analysis_document(result)
    write_document(document, *paths)
    if show.json:
        print_json(document.values())
    elif paths or show.quiet:
        for line in document.summary:
            print_line(line)
        for path in () if show.quiet else paths:
            print_line(f"written: {path}")
    else:
        from assay.report.terminal import TerminalReport

        print_report(
            TerminalReport(
                document, detail=report.detail, brief=not report.detail, answer_first=True
            )
        )
    return 0


add_commands(
    analyze,
    *(achievements, deaths, hooks, actions, costs, seeds, enhanced_hooks, quality, training),
)
