"""Training data: rows made from recorded episodes.

The episodes are read from a database or a folder of traces.
"""

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.api.traces import open_traces
from assay.core.options import takes_options
from assay.errors import UsageError
from assay.finetune.datasets.options import EpisodeFilters, Holdout, RowMode, RowOptions
from assay.store.opening import Where, store_at
from assay.types import TrialState

if TYPE_CHECKING:
    from assay.finetune.datasets.build import BuiltDataset
    from assay.store.store import Store


@contextmanager
def open_source(input_dir: Path | str | None, database: Where) -> "Iterator[Store]":
    """Open the database, or a temporary one with the traces of a folder, in a `with` block."""
    if input_dir is None:
        yield store_at(database)
        return
    from assay.store.trace_folder import INDEX

    folder = Path(input_dir)
    if not folder.is_dir():
        raise UsageError(_describe_missing_folder(folder))
    paths = [folder, *sorted(index.parent for index in folder.glob(f"*/{INDEX}"))]
    with open_traces(paths) as traces:
        yield traces.store


def _describe_missing_folder(folder: Path) -> str:
    from assay.store.trace_folder import INDEX

    folders = sorted(str(path.parent) for path in Path().glob(f"*/{INDEX}"))
    databases = sorted(map(str, Path().glob("*.duckdb")))
    suggestions = " and ".join(
        part
        for part in (
            f"trace folders here: {', '.join(folders)}" if folders else "",
            f"databases for --database: {', '.join(databases)}" if databases else "",
        )
        if part
    )
    return f"folder {str(folder)!r} does not exist; " + (
        suggestions or "there are no trace folders or databases here; 'assay run' creates both"
    )


def locate_source(input_dir: Path | str | None, store: "Store", output: Path) -> dict[str, str]:
    """Return the location of the episodes, relative to the data file."""
    here = output.absolute().parent
    if input_dir is not None:
        return {"input_dir": os.path.relpath(Path(input_dir).absolute(), here)}
    return {"database": os.path.relpath(store.path.absolute(), here)}


def find_folder_database(folder: Path) -> "Store | None":
    """Return the database from which a trace folder was written, if it exists."""
    from assay.store.trace_folder import read_index

    try:
        index = read_index(folder)
    except UsageError:
        return None
    path = None if index is None else folder / index.database
    return store_at(path) if path is not None and path.is_file() else None


_SCORING_BATCH = 500

Progress = Callable[[int, int], None]
"""Called with the number of completed items and their total."""


@takes_options
def sft_filter(
    output: Path | str | None = None,
    *,
    input_dir: Path | str | None = None,
    database: Where = None,
    filters: EpisodeFilters,
    rows: RowOptions,
    card: bool = False,
    command: str = "",
    progress: Progress = lambda done, total: None,
) -> "BuiltDataset":
    """Select episodes and write them as training data; without `output`, only count them.

    Args:
        output: File to write, such as data.jsonl; None to return only the counts per filter.
        input_dir: Folder of traces to read instead of a database.
        database: Database to read.
        filters: Criteria for the episodes.
        rows: Options for making rows.
        card: Also write a dataset card in Markdown, with figures.
        command: Command line, for the manifest.
        progress: Called with the number of completed turns and their total.

    Raises:
        UsageError: A value is invalid, or no rows are left to write.
    """
    from assay.finetune.datasets.build import build_dataset, summarize_episodes
    from assay.finetune.datasets.filters import choose_episodes
    from assay.store.finetune_jobs import PLAYED
    from assay.store.session_facts import agent_settings, named_experiments, session_facts

    started = time.perf_counter()
    with open_source(input_dir, database) as store:
        quality = {} if filters.min_quality is None else _score_traces(store)
        with store.reading() as connection:
            named = named_experiments(connection, filters.experiments)
            filters = replace(filters, experiments=tuple(sorted(named)))
            _check_names(connection, filters)
            found, steps, chosen = choose_episodes(
                session_facts(connection, filters.sql), filters, quality
            )
            played = agent_settings(connection, {episode.experiment_id for episode in chosen})
        if output is None:
            return summarize_episodes(found, steps, chosen, time.perf_counter() - started)
        seeds = {episode.seed for episode in chosen if episode.seed is not None}
        held_out_seeds = (filters.holdout or Holdout()).select(seeds)
        about = {
            "command": command,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "provenance": _read_provenance(),
            "source": locate_source(input_dir, store, Path(output)),
            "filters": filters.as_json(),
            "experiments": sorted({episode.experiment_id for episode in chosen}),
            "models": dict(Counter(episode.model for episode in chosen).most_common()),
            "holdout_seeds": sorted(held_out_seeds),
            # Rows of other modes contain more or less history than a request did.
            PLAYED: played if rows.mode is RowMode.CALL else {**played, "history": None},
        }
        built = build_dataset(
            store,
            chosen,
            rows,
            found=found,
            steps=steps,
            output=Path(output),
            holdout=(lambda episode: episode.seed in held_out_seeds)
            if held_out_seeds
            else None,
            about=about,
            progress=progress,
        )
    home = store if input_dir is None else find_folder_database(Path(input_dir))
    built = replace(built, noted_in=_record_worlds(built, home))
    if card:
        from assay.finetune.datasets.manifest import read_lineage
        from assay.report.dataset_card import write_card

        files = write_card(built, read_lineage(Path(output)) or {})
        built = replace(built, card=files[-1])
    return built


def _score_traces(store: "Store") -> dict[str, float]:
    """Return the quality score of each completed trace."""
    from assay.analyses.episodes import completed, load_facts
    from assay.analyses.quality import trace_quality
    from assay.store.queries import select_sessions

    with store.reading() as connection:
        ids = select_sessions(connection)
    scores: dict[str, float] = {}
    for start in range(0, len(ids), _SCORING_BATCH):
        batch = ids[start : start + _SCORING_BATCH]
        facts = load_facts(store, batch, steps=True, replies=True)
        if any(episode.row.state == TrialState.RESULT for episode in facts):
            scores |= {episode.id: trace_quality(episode).score for episode in completed(facts)}
    return scores


def _check_names(connection: Any, filters: EpisodeFilters) -> None:
    """Raise UsageError if a filter names an unknown achievement or hook."""
    from assay.core.text import unknown_name_error
    from assay.crafter.rules import ACHIEVEMENTS
    from assay.store.session_facts import known_achievements, known_hooks

    if filters.require_achievements:
        names = [*ACHIEVEMENTS, *known_achievements(connection)]
        for name in filters.require_achievements:
            if name not in names:
                raise unknown_name_error("achievement", name, [*dict.fromkeys(names)])
    if filters.hooks:
        names = known_hooks(connection)
        for name in filters.hooks:
            if name not in names:
                raise unknown_name_error("hook", name, names, empty="no hook has fired in it")


def _record_worlds(built: "BuiltDataset", store: "Store | None") -> Path | None:
    """Record in a database which worlds were used for training; return None if impossible."""
    from assay.errors import StoreError
    from assay.store.finetune_jobs import register_dataset

    if store is None or built.path is None:
        return None
    try:
        with store.writing() as connection:
            register_dataset(connection, built.dataset, built.path.name, built.worlds)
    except StoreError:
        return None
    return store.path


def measure_peak_memory() -> int:
    """Return the peak memory usage of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _read_provenance() -> dict[str, Any]:
    from assay.core.provenance import collect_provenance

    return collect_provenance().record()
