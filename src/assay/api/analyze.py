"""Analyses of many episodes: every `assay analyze` command as a function.

    import assay
    assay.analyze.quality("traces_multi_model").models
    assay.analyze.achievements(run="latest", database="traces.duckdb")

The first argument is a folder or file of traces; without it the database is read.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from assay.api.traces import open_traces
from assay.core.options import takes_options
from assay.core.text import counted
from assay.errors import UsageError
from assay.store.opening import Where, store_at
from assay.store.options import SessionGroups

if TYPE_CHECKING:
    from assay.analyses.achievements import AchievementsAnalysis
    from assay.analyses.actions import ActionsAnalysis
    from assay.analyses.costs import CostsAnalysis
    from assay.analyses.deaths import DeathsAnalysis
    from assay.analyses.enhanced_hooks import EnhancedHooksAnalysis
    from assay.analyses.episodes import EpisodeFacts
    from assay.analyses.hooks import HooksAnalysis
    from assay.analyses.quality import QualityAnalysis
    from assay.analyses.training import TrainingAnalysis
    from assay.analyses.worlds import WorldsAnalysis
    from assay.store.store import Store

Source = Path | str | Sequence[Path | str] | None
"""Folders or files of traces, or None for the database."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class _SelectedEpisodes:
    """Selected episodes, with their database, which is open while they are analysed."""

    store: "Store"
    session_ids: Sequence[str]
    by: str
    source: str
    notes: Sequence[str]

    def load(self, **parts: bool) -> "list[EpisodeFacts]":
        from assay.analyses.episodes import load_facts

        return load_facts(self.store, self.session_ids, by=self.by, **parts)

    def add_source(self, value: _T) -> _T:
        """Return the analysis with the source of its episodes added."""
        analysis: Any = value
        notes = (*self.notes, *analysis.basis.notes)
        basis = replace(analysis.basis, source=self.source, notes=notes)
        return replace(analysis, basis=basis)  # type: ignore[no-any-return]


@contextmanager
def _select_episodes(
    source: Source, which: SessionGroups, database: Where
) -> Iterator[_SelectedEpisodes]:
    from assay.store.queries import select_sessions

    options = asdict(which)
    by = options.pop("by")
    filters = {name: value for name, value in options.items() if value is not None}
    # Forks share their first turns, which would count several times among whole episodes.
    is_named = "run" in filters or "experiment" in filters
    with _open_source(source, database) as (store, where, notes):
        with store.reading() as connection:
            all_ids = select_sessions(connection, **filters)
            unforked_ids = select_sessions(connection, forks=False, **filters)
            session_ids = all_ids if is_named else unforked_ids or all_ids
            total = len(select_sessions(connection)) if filters and not session_ids else 0
        if not session_ids:
            raise UsageError(_describe_empty_selection(where, filters, total))
        if forks := len(all_ids) - len(unforked_ids):
            notes = [*notes, _describe_forks(forks, excluded=session_ids is unforked_ids)]
        yield _SelectedEpisodes(store, session_ids, by, where, notes)


@contextmanager
def _open_source(source: Source, database: Where) -> "Iterator[tuple[Store, str, list[str]]]":
    paths = [source] if isinstance(source, Path | str) else list(source or ())
    if not paths:
        store = store_at(database)
        yield store, str(store.path), []
        return
    if len(paths) == 1 and Path(paths[0]).suffix == ".duckdb":
        yield store_at(paths[0]), str(paths[0]), []
        return
    with open_traces([Path(path) for path in paths]) as (store, damaged):
        notes = []
        if damaged:
            where, reason = damaged[0]
            notes.append(
                f"{len(damaged)} of the files could not be read and are excluded; the first:"
                f" {where} {reason}."
            )
        yield store, ", ".join(map(str, paths)), notes


def _describe_forks(forks: int, *, excluded: bool) -> str:
    if excluded:
        return f"Excluded: {counted(forks, 'forked episode')}; --run selects their run."
    return (
        f"{counted(forks, 'episode')} of these are forks: they share their first turns, which "
        "count in each of them."
    )


def _describe_empty_selection(where: str, filters: dict[str, Any], total: int) -> str:
    if not filters or not total:
        return (
            f"no episodes in {where!r}; record some with 'assay run --episodes 5', or give a"
            " folder of traces"
        )
    criteria = ", ".join(
        f"{name} {list(value) if isinstance(value, tuple) else value!r}"
        for name, value in filters.items()
    )
    return (
        f"none of the {total} episodes in {where!r} has {criteria}; 'assay traces list' shows"
        " them"
    )


@takes_options
def achievements(
    source: Source = None, *, which: SessionGroups, database: Where = None
) -> "AchievementsAnalysis":
    """Analyse how often and how early each achievement is unlocked, and what was missing."""
    from assay.analyses.achievements import analyse_achievements
    from assay.analyses.deaths import play_endings

    with _select_episodes(source, which, database) as episodes:
        facts = episodes.load()
        return episodes.add_source(
            analyse_achievements(facts, play_endings(episodes.store, facts))
        )


@takes_options
def deaths(
    source: Source = None, *, which: SessionGroups, database: Where = None
) -> "DeathsAnalysis":
    """Analyse causes of death, lifetimes, and the last actions of the player."""
    from assay.analyses.deaths import analyse_deaths, play_endings

    with _select_episodes(source, which, database) as episodes:
        facts = episodes.load()
        return episodes.add_source(analyse_deaths(facts, play_endings(episodes.store, facts)))


@takes_options
def hooks(
    source: Source = None, *, which: SessionGroups, database: Where = None
) -> "HooksAnalysis":
    """Analyse how often hooks fire: by model, turn and action, and in combination."""
    from assay.analyses.hooks import analyse_hooks

    with _select_episodes(source, which, database) as episodes:
        return episodes.add_source(analyse_hooks(episodes.load(hooks=True, steps=True)))


@takes_options
def actions(
    source: Source = None, *, which: SessionGroups, database: Where = None
) -> "ActionsAnalysis":
    """Analyse the actions of models: frequencies, sequences, results and waste."""
    from assay.analyses.actions import analyse_actions

    with _select_episodes(source, which, database) as episodes:
        return episodes.add_source(analyse_actions(episodes.load(steps=True, replies=True)))


@takes_options
def costs(
    source: Source = None, *, which: SessionGroups, database: Where = None
) -> "CostsAnalysis":
    """Analyse dollars and tokens by model, by result and by turn."""
    from assay.analyses.costs import analyse_costs

    with _select_episodes(source, which, database) as episodes:
        return episodes.add_source(analyse_costs(episodes.load(calls=True)))


@takes_options
def seeds(
    source: Source = None,
    *,
    metric: str | None = None,
    which: SessionGroups,
    database: Where = None,
) -> "WorldsAnalysis":
    """Analyse the influence of the world: results by world, shares of variance, outliers.

    Args:
        source: Folder or file of traces; default: the database.
        metric: achievements, reward, steps or invalid_rate.
        which: Filters for the episodes; `seeds` selects worlds.
        database: Database to read, or a snapshot of one.
    """
    from assay.analyses.worlds import analyse_worlds, make_worlds

    with _select_episodes(source, which, database) as episodes:
        facts = episodes.load()
        analysis = analyse_worlds(
            facts, lambda worlds: make_worlds(episodes.store, facts, worlds), metric=metric
        )
        return episodes.add_source(analysis)


@takes_options
def enhanced_hooks(
    source: Source = None,
    *,
    enhancements: Path | str,
    landmark: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    which: SessionGroups,
    database: Where = None,
) -> "EnhancedHooksAnalysis":
    """Apply hooks from a file to stored episodes, and analyse what is associated with them.

    Args:
        source: Folder or file of traces; default: the database.
        enhancements: JSON file of hooks; `assay.analyze.hook_schema()` is its format.
        landmark: Step at which episodes are split; default: from the file.
        progress: Called with the number of replayed episodes and their total.
        which: Filters for the episodes.
        database: Database to read, or a snapshot of one.
    """
    from assay.analyses.enhanced_hooks import analyse_enhanced_hooks, fire_all
    from assay.analyses.hook_files import read_hooks

    declared = read_hooks(Path(enhancements))
    with _select_episodes(source, which, database) as episodes:
        facts = episodes.load()
        firings = fire_all(episodes.store, facts, declared, progress)
        return episodes.add_source(
            analyse_enhanced_hooks(facts, declared, firings, landmark=landmark)
        )


def hook_schema() -> dict[str, Any]:
    """Return the JSON schema of a hook file."""
    from assay.analyses.hook_files import SCHEMA

    return dict(SCHEMA)


@takes_options
def quality(
    source: Source = None, *, which: SessionGroups, database: Where = None
) -> "QualityAnalysis":
    """Score every trace from 0 to 1 with reasons, and list near duplicates."""
    from assay.analyses.quality import analyse_quality

    with _select_episodes(source, which, database) as episodes:
        return episodes.add_source(analyse_quality(episodes.load(steps=True, replies=True)))


def training(job_ids: str | Sequence[str], *, database: Where = None) -> "TrainingAnalysis":
    """Analyse fine-tuning jobs: loss, accuracy, learning rate, speed, and overfitting.

    Args:
        job_ids: Ids or starts of ids, as a list or separated by commas; `latest` is the newest.
        database: Database to read.
    """
    from assay.analyses.training import analyse_training
    from assay.store.finetune_jobs import find_job, job_events

    names = job_ids.split(",") if isinstance(job_ids, str) else list(job_ids)
    store = store_at(database)
    with store.reading() as connection:
        jobs = [find_job(connection, name.strip()) for name in names if name.strip()]
        # A job that is named twice counts once.
        unique_jobs = {(job.address, job.id): job for job in jobs}
        jobs_with_events = [(job, job_events(connection, job)) for job in unique_jobs.values()]
    return analyse_training(jobs_with_events, str(store.path))
