"""`assay analyze`: what happened in many episodes, in numbers and pictures."""

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
    """Where episodes are read from."""

    traces: Annotated[list[Path] | None, Parameter(negative="")] = None
    """Folders or files of traces to read instead of the store."""
    database: Annotated[Database, Parameter(group=_WHICH)] = DEFAULT_DATABASE
    """The store to read, or a snapshot of one."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Telling:
    """Where an analysis goes, and how much of it is printed."""

    output: Annotated[list[Path] | None, Parameter(negative="")] = None
    """Files to write; their endings say what."""
    detail: Flag = False
    """Print all tables and lists, and not only what fits the screen."""


_STORE, _BRIEF = Place(), Telling()

analyze = App(
    name="analyze",
    help="""Say what happened in many episodes, in numbers and pictures.

Each command reads the store, or a folder of traces that is named first, and writes
what --output names: .html, .md, .json, .csv, or the figure as .png or .svg.

For example:

    assay analyze achievements --output achievements.html
    assay analyze quality traces_multi_model
""",
    help_format="plaintext",
)

_ARGS = """

Args:
    source: A folder or file of traces to read in place of the store.
    which: Which episodes.
    place: Where they are.
    to: How it is told.
    show: What to print.
"""


def _analysis(name: str, about: str) -> Callable[..., int]:
    """A command that asks for nothing but which episodes it is about."""

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
    """Show how often and how soon each achievement is reached.

Beside each model stand people and the random policy of the Crafter paper. Named
is also what was missing for the next achievement when episodes ended.

For example:

    assay analyze achievements --output achievements.png""",
)

deaths = _analysis(
    "deaths",
    """Show what episodes died of, when, and what the player was doing.

The engine knows what killed a player: a zombie, an arrow, lava, thirst, hunger
or fatigue. Episodes that died are played again to see their last steps.

For example:

    assay analyze deaths --model builtin/forager --output deaths.html""",
)

hooks = _analysis(
    "hooks",
    """Show how often each hook fires, by model and by turn.

Also which hooks fire in the same episodes, on which actions, and when first.

For example:

    assay analyze hooks --traces traces_multi_model --output hooks.png""",
)

actions = _analysis(
    "actions",
    """Show what models do, what leads somewhere, and what is wasted.

Waste has four kinds: an action without effect, one ignored while asleep, one
that does not exist, and a reply that cannot be read.

For example:

    assay analyze actions --output action_patterns.png""",
)

costs = _analysis(
    "costs",
    """Show what results cost, in dollars and tokens.

By model, by achievement and by turn, with cached and reasoning tokens apart, and
who is on the frontier: nobody is both cheaper and better.

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
    """Show how much the world decides, and which worlds tell models apart.

    The variance of results is shared among the world, the model, both together and
    the rest. Outliers are shown from above, with the way to what a player needs.
    --seeds takes some worlds alone.

    For example:

        assay analyze seeds --seeds 42,43,44,45 --output seed_report.json

    Args:
        source: A folder or file of traces to read in place of the store.
        metric: achievements, reward, steps or invalid_rate; achievements where there are any.
        which: Which episodes.
        place: Where they are.
        to: How it is told.
        show: What to print.
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
    """Try hooks of a file on stored episodes, and show what goes with them.

    Episodes are played again, so that a hook can ask for inventory, what is near,
    day and night. Those that last beyond the landmark, a step fixed beforehand, are
    parted by whether a hook had fired, and what they reach after it is compared: an
    association, not an effect. --schema prints the format of the file.

    For example:

        assay analyze enhanced-hooks --enhancements enhanced_hooks.json --landmark 100

    Args:
        source: A folder or file of traces to read in place of the store.
        enhancements: A JSON file of hooks.
        landmark: The step at which episodes are parted; fix it before you look at results.
        schema: Print the JSON schema of such a file.
        which: Which episodes.
        place: Where they are.
        to: How it is told.
        show: What to print.
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
    """Score every trace from 0 to 1, and say why.

The score is progress x (1 - waste) x (1 - loops) x (1 - replies without use).
Named are the best and the worst traces, and those that are nearly the same.

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
    """Show how fine-tuning jobs went, side by side.

    Losses, token accuracy and learning rate by step, speed, and whether the loss on
    validation data rises while that on training data falls.

    For example:

        assay analyze training --job-ids ftjob-abc123,ftjob-def456 --output training.html

    Args:
        job_ids: Ids of jobs, or starts of ids, with commas between them.
        to: How it is told.
        database: The store that keeps the jobs.
        show: What to print.
    """
    from assay.api import analyze
    from assay.report.files import check_endings

    check_endings(tuple(to.output or ()), pictures=True)
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
    from assay.report.files import check_endings

    check_endings(tuple(to.output or ()), pictures=True)
    with compiling_shown(show):
        paths = [*([] if source is None else [source]), *(place.traces or ())]
        return function(paths or None, database=open_store(place.database, show), **choices)


def _say_found(found: Any, to: Telling, show: Show) -> int:
    """Write and print what an analysis found."""
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
