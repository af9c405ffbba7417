"""`assay analyze`: summaries of many episodes in tables and figures."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from assay.cli.options import Database, Flag, Given, add_commands, open_store, option_groups
from assay.cli.output import Show, compiling_shown, counting, say, say_json, say_report
from assay.cli.tables import Whole
from assay.errors import UsageError
from assay.store.location import DEFAULT_DATABASE

_WHICH = Group("Which episodes", sort_key=2)


_OF_EPISODES = option_groups({"which": _WHICH}, which="assay.store.options:SessionGroups")


@Parameter(name="*", group=_WHICH)
@dataclass(frozen=True, kw_only=True)
class Place:
    """Source of the episodes."""

    traces: Annotated[list[Path] | None, Parameter(negative="")] = None
    """Read these folders or files of traces instead of the database."""
    database: Annotated[Database, Parameter(group=_WHICH)] = DEFAULT_DATABASE
    """Database to read, or a snapshot of one."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Telling:
    """Output files of an analysis, and the amount of printed detail."""

    output: Annotated[list[Path] | None, Parameter(negative="")] = None
    """Write the analysis to these files; the extension sets the format."""
    detail: Flag = False
    """Print all tables and lists in full, instead of an extract."""


_STORE, _BRIEF = Place(), Telling()

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

_ARGS = """

Args:
    source: Folder or file of traces to read instead of the database.
    which: Filters for the episodes.
    place: Source of the episodes.
    to: Output files and detail.
    show: Output options.
"""


def _analysis(name: str, about: str) -> Callable[..., int]:
    """Build a command whose only options are filters for episodes, and output."""

    @_OF_EPISODES
    def command(
        source: Path | None = None,
        *,
        which: Given,
        place: Place = _STORE,
        to: Telling = _BRIEF,
        show: Show = Show(),
    ) -> int:
        from assay.api import analyze

        return _tell(getattr(analyze, name), source, to, place, show, **which)

    command.__doc__ = about + _ARGS
    command.__name__ = command.__qualname__ = name
    return command


achievements = _analysis(
    "achievements",
    """Show how often and how early each achievement is unlocked.

Human players and the random policy of the Crafter paper are shown for comparison.
The report also lists what was missing for the next achievement at the end of the
episodes.

For example:

    assay analyze achievements --output achievements.png""",
)

deaths = _analysis(
    "deaths",
    """Show causes of death, survival times, and the last actions.

The cause is a zombie, an arrow, lava, thirst, hunger or fatigue. Episodes that
ended in death are replayed to find their last steps.

For example:

    assay analyze deaths --model builtin/forager --output deaths.html""",
)

hooks = _analysis(
    "hooks",
    """Show how often each hook fires, by model and by turn.

The report also shows which hooks fire in the same episodes, on which actions, and
when each hook fires first.

For example:

    assay analyze hooks --traces traces_multi_model --output hooks.png""",
)

actions = _analysis(
    "actions",
    """Show which actions models take, which make progress, and waste.

Waste has four kinds: actions without effect, actions ignored while asleep, actions
that do not exist, and malformed replies.

For example:

    assay analyze actions --output action_patterns.png""",
)

costs = _analysis(
    "costs",
    """Show the cost of results in dollars and tokens.

Costs are reported by model, by achievement and by turn, with cached and reasoning
tokens listed separately. Models are on the cost/quality frontier if no other model
is both cheaper and better.

For example:

    assay analyze costs --run latest --output costs.html""",
)


@_OF_EPISODES
def seeds(
    source: Path | None = None,
    *,
    metric: str | None = None,
    which: Given,
    place: Place = _STORE,
    to: Telling = _BRIEF,
    show: Show = Show(),
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
        which: Filters for the episodes.
        place: Source of the episodes.
        to: Output files and detail.
        show: Output options.
    """
    from assay.api import analyze

    return _tell(analyze.seeds, source, to, place, show, metric=metric, **which)


@_OF_EPISODES
def enhanced_hooks(
    source: Path | None = None,
    *,
    enhancements: Path | None = None,
    landmark: Whole | None = None,
    schema: Flag = False,
    which: Given,
    place: Place = _STORE,
    to: Telling = _BRIEF,
    show: Show = Show(),
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
        which: Filters for the episodes.
        place: Source of the episodes.
        to: Output files and detail.
        show: Output options.
    """
    from assay.api import analyze

    if schema:
        say_json(analyze.hook_schema())
        return 0
    if enhancements is None:
        raise UsageError(
            "--enhancements FILE is missing; --schema prints what such a file holds, and"
            ' {"hooks": [{"name": "thirsty", "when": {"item": "drink", "at_most": 3}}]} is one'
        )
    with counting(show, "replaying") as progress:
        found = _found(
            analyze.enhanced_hooks,
            source,
            to,
            place,
            show,
            progress=progress,
            enhancements=enhancements,
            landmark=landmark,
            **which,
        )
    return _say_found(found, to, show)


quality = _analysis(
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
    to: Telling = _BRIEF,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Compare the training curves of fine-tuning jobs.

    The report has losses, token accuracy and learning rate by step, the speed, and a check
    for overfitting: a validation loss that rises while the training loss falls.

    For example:

        assay analyze training --job-ids ftjob-abc123,ftjob-def456 --output training.html

    Args:
        job_ids: Job ids, or starts of ids, separated by commas.
        to: Output files and detail.
        database: Database with the jobs.
        show: Output options.
    """
    from assay.api import analyze
    from assay.report.files import check_file_extensions

    check_file_extensions(tuple(to.output or ()), images=True)
    names = ",".join(job_ids or ["latest"])
    found = analyze.training(names, database=open_store(database, show))
    return _say_found(found, to, show)


def _tell(
    function: Any,
    source: Path | None,
    to: Telling,
    place: Place,
    show: Show,
    **choices: Any,
) -> int:
    return _say_found(_found(function, source, to, place, show, **choices), to, show)


def _found(
    function: Any,
    source: Path | None,
    to: Telling,
    place: Place,
    show: Show,
    **choices: Any,
) -> Any:
    from assay.report.files import check_file_extensions

    check_file_extensions(tuple(to.output or ()), images=True)
    with compiling_shown(show):
        paths = [*([] if source is None else [source]), *(place.traces or ())]
        return function(paths or None, database=open_store(place.database, show), **choices)


def _say_found(found: Any, to: Telling, show: Show) -> int:
    """Write and print the result of an analysis."""
    from assay.analyses.episodes import analysis_document
    from assay.report.files import write_document

    paths = tuple(to.output or ())
    document = analysis_document(found)
    write_document(document, *paths)
    if show.json:
        say_json(document.values())
    elif paths or show.quiet:
        for line in document.summary:
            say(line)
        for path in () if show.quiet else paths:
            say(f"written: {path}")
    else:
        from assay.report.terminal import TerminalReport

        say_report(
            TerminalReport(document, detail=to.detail, brief=not to.detail, answer_first=True)
        )
    return 0


add_commands(
    analyze,
    *(achievements, deaths, hooks, actions, costs, seeds, enhanced_hooks, quality, training),
)
