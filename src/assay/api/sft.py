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

from assay.api.traces import traces_as_store
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
        raise UsageError(_no_folder(folder))
    paths = [folder, *sorted(each.parent for each in folder.glob(f"*/{INDEX}"))]
    with traces_as_store(paths) as traces:
        yield traces.store


def _no_folder(folder: Path) -> str:
    from assay.store.trace_folder import INDEX

    near = sorted(str(path.parent) for path in Path().glob(f"*/{INDEX}"))
    stores = sorted(map(str, Path().glob("*.duckdb")))
    there = " and ".join(
        part
        for part in (
            f"folders of traces here: {', '.join(near)}" if near else "",
            f"stores, for --database: {', '.join(stores)}" if stores else "",
        )
        if part
    )
    return f"there is no folder {str(folder)!r}; " + (
        there or "here are neither folders of traces nor stores; 'assay run' makes both"
    )


def source_from(input_dir: Path | str | None, store: "Store", output: Path) -> dict[str, str]:
    """Return the location of the episodes, relative to the data file."""
    here = output.absolute().parent
    if input_dir is not None:
        return {"input_dir": os.path.relpath(Path(input_dir).absolute(), here)}
    return {"database": os.path.relpath(store.path.absolute(), here)}


def store_of_folder(folder: Path) -> "Store | None":
    """Return the database from which a trace folder was written, if it exists."""
    from assay.store.trace_folder import read_index

    try:
        index = read_index(folder)
    except UsageError:
        return None
    path = None if index is None else folder / index.database
    return store_at(path) if path is not None and path.is_file() else None


_SCORED_AT_ONCE = 500

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
        quality = {} if filters.min_quality is None else _qualities(store)
        with store.reading() as connection:
            named = named_experiments(connection, filters.experiments)
            filters = replace(filters, experiments=tuple(sorted(named)))
            _check_names(connection, filters)
            found, steps, chosen = choose_episodes(
                session_facts(connection, filters.sql), filters, quality
            )
            played = agent_settings(connection, {each.experiment_id for each in chosen})
        if output is None:
            return summarize_episodes(found, steps, chosen, time.perf_counter() - started)
        seeds = {each.seed for each in chosen if each.seed is not None}
        out = (filters.holdout or Holdout()).select(seeds)
        about = {
            "command": command,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "provenance": _provenance(),
            "source": source_from(input_dir, store, Path(output)),
            "filters": filters.as_json(),
            "experiments": sorted({each.experiment_id for each in chosen}),
            "models": dict(Counter(each.model for each in chosen).most_common()),
            "holdout_seeds": sorted(out),
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
            holdout=(lambda each: each.seed in out) if out else None,
            about=about,
            progress=progress,
        )
    kept = store if input_dir is None else store_of_folder(Path(input_dir))
    built = replace(built, noted_in=_note_worlds(built, kept))
    if card:
        from assay.finetune.datasets.manifest import read_lineage
        from assay.report.dataset_card import write_card

        files = write_card(built, read_lineage(Path(output)) or {})
        built = replace(built, card=files[-1])
    return built


def _qualities(store: "Store") -> dict[str, float]:
    """Return the quality score of each completed trace."""
    from assay.analyses.episodes import completed, load_facts
    from assay.analyses.quality import trace_quality
    from assay.store.queries import select_sessions

    with store.reading() as connection:
        ids = select_sessions(connection)
    scores: dict[str, float] = {}
    for start in range(0, len(ids), _SCORED_AT_ONCE):
        some = ids[start : start + _SCORED_AT_ONCE]
        facts = load_facts(store, some, steps=True, replies=True)
        if any(each.row.state == TrialState.RESULT for each in facts):
            scores |= {each.id: trace_quality(each).score for each in completed(facts)}
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
                raise unknown_name_error(
                    "hook", name, names, empty="no hook noticed anything in it"
                )


def _note_worlds(built: "BuiltDataset", store: "Store | None") -> Path | None:
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


def peak_memory() -> int:
    """Return the peak memory usage of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _provenance() -> dict[str, Any]:
    from assay.core.provenance import collect_provenance

    return collect_provenance().record()
