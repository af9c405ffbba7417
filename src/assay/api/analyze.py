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

from assay.api.traces import traces_as_store
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
class _Chosen:
    """Selected episodes, with their database, which is open while they are analysed."""

    store: "Store"
    session_ids: Sequence[str]
    by: str
    source: str
    notes: Sequence[str]

    def facts(self, **parts: bool) -> "list[EpisodeFacts]":
        from assay.analyses.episodes import load_facts

        return load_facts(self.store, self.session_ids, by=self.by, **parts)

    def said(self, value: _T) -> _T:
        """Return the analysis with the source of its episodes added."""
        given: Any = value
        notes = (*self.notes, *given.basis.notes)
        basis = replace(given.basis, source=self.source, notes=notes)
        return replace(given, basis=basis)  # type: ignore[no-any-return]


@contextmanager
def _chosen(source: Source, which: SessionGroups, database: Where) -> Iterator[_Chosen]:
    from assay.store.queries import select_sessions

    given = asdict(which)
    by = given.pop("by")
    narrowed = {name: value for name, value in given.items() if value is not None}
    # Forks share their first turns, which would count several times among whole episodes.
    named = "run" in narrowed or "experiment" in narrowed
    with _store(source, database) as (store, where, notes):
        with store.reading() as connection:
            every = select_sessions(connection, **narrowed)
            whole = select_sessions(connection, forks=False, **narrowed)
            found = every if named else whole or every
            total = len(select_sessions(connection)) if narrowed and not found else 0
        if not found:
            raise UsageError(_nothing(where, narrowed, total))
        if forks := len(every) - len(whole):
            notes = [*notes, _about_forks(forks, left_out=found is whole)]
        yield _Chosen(store, found, by, where, notes)


@contextmanager
def _store(source: Source, database: Where) -> "Iterator[tuple[Store, str, list[str]]]":
    paths = [source] if isinstance(source, Path | str) else list(source or ())
    if not paths:
        store = store_at(database)
        yield store, str(store.path), []
        return
    if len(paths) == 1 and Path(paths[0]).suffix == ".duckdb":
        yield store_at(paths[0]), str(paths[0]), []
        return
    with traces_as_store([Path(path) for path in paths]) as (store, damaged):
        notes = []
        if damaged:
            where, reason = damaged[0]
            notes.append(
                f"{len(damaged)} of the files could not be read and are left out, the first:"
                f" {where} {reason}."
            )
        yield store, ", ".join(map(str, paths)), notes


def _about_forks(forks: int, *, left_out: bool) -> str:
    if left_out:
        return f"Left out: {counted(forks, 'forked episode')}; --run names the run of them."
    return (
        f"{counted(forks, 'episode')} of these were forked: they share the turns up to the "
        "state that they were played on from, which count in each of them."
    )


def _nothing(where: str, narrowed: dict[str, Any], total: int) -> str:
    if not narrowed or not total:
        return (
            f"there are no episodes in {where!r}; play some with 'assay run --episodes 5', or"
            " name a folder of traces"
        )
    asked = ", ".join(
        f"{name} {list(value) if isinstance(value, tuple) else value!r}"
        for name, value in narrowed.items()
    )
    return (
        f"none of the {total} episodes in {where!r} has {asked}; 'assay traces list' shows"
        " what there is"
    )


@takes_options
def achievements(
    source: Source = None, *, which: SessionGroups, database: Where = None
) -> "AchievementsAnalysis":
    """Analyse how often and how early each achievement is unlocked, and what was missing."""
    from assay.analyses.achievements import analyse_achievements
    from assay.analyses.deaths import play_endings

    with _chosen(source, which, database) as chosen:
        facts = chosen.facts()
        return chosen.said(analyse_achievements(facts, play_endings(chosen.store, facts)))


@takes_options
def deaths(
    source: Source = None, *, which: SessionGroups, database: Where = None
) -> "DeathsAnalysis":
    """Analyse causes of death, lifetimes, and the last actions of the player."""
    from assay.analyses.deaths import analyse_deaths, play_endings

    with _chosen(source, which, database) as chosen:
        facts = chosen.facts()
        return chosen.said(analyse_deaths(facts, play_endings(chosen.store, facts)))


@takes_options
def hooks(
    source: Source = None, *, which: SessionGroups, database: Where = None
) -> "HooksAnalysis":
    """Analyse how often hooks fire: by model, turn and action, and in combination."""
    from assay.analyses.hooks import analyse_hooks

    with _chosen(source, which, database) as chosen:
        return chosen.said(analyse_hooks(chosen.facts(hooks=True, steps=True)))


@takes_options
def actions(
    source: Source = None, *, which: SessionGroups, database: Where = None
) -> "ActionsAnalysis":
    """Analyse the actions of models: frequencies, sequences, results and waste."""
    from assay.analyses.actions import analyse_actions

    with _chosen(source, which, database) as chosen:
        return chosen.said(analyse_actions(chosen.facts(steps=True, replies=True)))


@takes_options
def costs(
    source: Source = None, *, which: SessionGroups, database: Where = None
) -> "CostsAnalysis":
    """Analyse dollars and tokens by model, by result and by turn."""
    from assay.analyses.costs import analyse_costs

    with _chosen(source, which, database) as chosen:
        return chosen.said(analyse_costs(chosen.facts(calls=True)))


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

    with _chosen(source, which, database) as chosen:
        facts = chosen.facts()
        found = analyse_worlds(
            facts, lambda worlds: make_worlds(chosen.store, facts, worlds), metric=metric
        )
        return chosen.said(found)


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
    with _chosen(source, which, database) as chosen:
        facts = chosen.facts()
        firings = fire_all(chosen.store, facts, declared, progress)
        return chosen.said(analyse_enhanced_hooks(facts, declared, firings, landmark=landmark))


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

    with _chosen(source, which, database) as chosen:
        return chosen.said(analyse_quality(chosen.facts(steps=True, replies=True)))


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
        once = {(job.address, job.id): job for job in jobs}
        found = [(job, job_events(connection, job)) for job in once.values()]
    return analyse_training(found, str(store.path))
