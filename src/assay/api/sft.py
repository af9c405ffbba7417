"""Training data: rows made of recorded episodes.

Where the episodes of training data are read from: a store, or a folder of traces.
"""

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.api.traces import traces_as_store
from assay.errors import UsageError
from assay.store.opening import Where, store_at
from assay.types import TrialState

if TYPE_CHECKING:
    from assay.finetune.datasets.build import BuiltDataset
    from assay.finetune.datasets.filters import EpisodeFilters
    from assay.store.store import Store


@contextmanager
def open_source(input_dir: Path | str | None, database: Where) -> "Iterator[Store]":
    """The store that is meant, or one for as long as the block takes, made of a folder."""
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
    """Where the episodes are, seen from the data file."""
    here = output.absolute().parent
    if input_dir is not None:
        return {"input_dir": os.path.relpath(Path(input_dir).absolute(), here)}
    return {"database": os.path.relpath(store.path.absolute(), here)}


def store_of_folder(folder: Path) -> "Store | None":
    """The store whose traces a folder holds, if it is there."""
    from assay.store.trace_folder import read_index

    try:
        index = read_index(folder)
    except UsageError:
        return None
    path = None if index is None else folder / index.database
    return store_at(path) if path is not None and path.is_file() else None


_SCORED_AT_ONCE = 500

Progress = Callable[[int, int], None]
"""Told how much is done, and of how much."""


def sft_filter(
    output: Path | str | None = None,
    *,
    input_dir: Path | str | None = None,
    database: Where = None,
    experiment: Sequence[str] = (),
    models: Sequence[str] = (),
    seeds: str | Sequence[int] = (),
    difficulty: Sequence[str] = (),
    min_achievements: int | None = None,
    min_reward: float | None = None,
    max_turns: int | None = None,
    require_termination: bool = False,
    require_achievement: Sequence[str] = (),
    max_invalid_rate: float | None = None,
    max_cost: float | None = None,
    hook: Sequence[str] = (),
    min_quality: float | None = None,
    sql: str | None = None,
    top: str | float | None = None,
    max_per_world: int | None = None,
    holdout_seeds: str | Sequence[int] | None = None,
    mode: str = "call",
    turns: int = 8,
    format: str = "openai",
    drop_waste: bool = False,
    mask_waste: bool = False,
    balance_actions: bool = False,
    dedupe: bool = False,
    drop_notes: bool = False,
    relabel: bool = False,
    train_history: bool = False,
    prompt_completion: bool = False,
    card: bool = False,
    command: str = "",
    progress: Progress = lambda done, total: None,
) -> "BuiltDataset":
    """Choose episodes and write them as training data; without `output`, only count.

    Args:
        output: The file to write, such as data.jsonl; None for the funnel alone.
        input_dir: A folder of traces to read in place of a store.
        database: The store to read.
        experiment: Only these experiments, or those of these runs.
        models: Only episodes that these played.
        seeds: Only these worlds: seeds, or a text such as "42,43,50-59".
        difficulty: Only these difficulties.
        min_achievements: At least so many different achievements.
        min_reward: At least this reward.
        max_turns: At most so many turns.
        require_termination: Only episodes that ended by themselves, and by no limit.
        require_achievement: Only episodes that unlocked all of these.
        max_invalid_rate: At most this share of invalid actions.
        max_cost: At most so many dollars.
        hook: Only episodes in which all of these hooks noticed something.
        min_quality: At least this score of `assay.analyze.quality`, from 0 to 1.
        sql: A condition over the columns of the view `episodes`.
        top: The best share of each world, such as "20%".
        max_per_world: At most so many episodes of each world, the best ones.
        holdout_seeds: Worlds that go into a file of their own: seeds, or "20%" of them.
        mode: call, window or episode.
        turns: Turns of a window.
        format: openai, messages, trl, sharegpt, preference, preference-trl or prompts.
        drop_waste: Leave out rows whose turn came to nothing.
        mask_waste: Give the answers of such turns the weight 0.
        balance_actions: Let no first action have more rows than the median one.
        dedupe: Leave out rows that are the same as one before.
        relabel: Put in place of each answer what `builtin/expert` would have answered.
        drop_notes: Take the notes out of all answers, in requests and replies.
        train_history: Train the answers in a prompt too.
        prompt_completion: For trl, prompt and completion in place of messages.
        card: Also write a card in Markdown with figures.
        command: What the user typed, for the manifest.
        progress: Told of the turns that are done.

    Raises:
        UsageError: A value is not allowed, or nothing is left to write.
    """
    from assay.core.text import unknown_name
    from assay.finetune.datasets.build import build_dataset, episodes_only
    from assay.finetune.datasets.filters import EpisodeFilters, choose_episodes
    from assay.finetune.datasets.formats import RowFormat
    from assay.finetune.datasets.plan import DatasetPlan, Holdout, Mode, read_seeds, read_share
    from assay.store.finetune_jobs import PLAYED
    from assay.store.session_facts import agent_settings, named_experiments, session_facts

    for kind, name, allowed in (("mode", mode, Mode), ("format", format, RowFormat)):
        if name not in list(allowed):
            raise UsageError(unknown_name(kind, name, list(allowed)))
    plan = DatasetPlan(
        form=RowFormat(format),
        mode=Mode(mode),
        turns=turns,
        drop_waste=drop_waste,
        mask_waste=mask_waste,
        balance_actions=balance_actions,
        dedupe=dedupe,
        drop_notes=drop_notes,
        relabel=relabel,
        train_history=train_history,
        prompt_completion=prompt_completion,
    )
    filters = EpisodeFilters(
        models=tuple(models),
        seeds=read_seeds(seeds, "--seeds") if isinstance(seeds, str) else tuple(seeds),
        difficulties=tuple(difficulty),
        min_achievements=min_achievements,
        min_reward=min_reward,
        max_turns=max_turns,
        require_termination=require_termination,
        require_achievements=tuple(require_achievement),
        max_invalid_rate=max_invalid_rate,
        max_cost=max_cost,
        hooks=tuple(hook),
        min_quality=min_quality,
        sql=sql,
        top=None if top is None else read_share(str(top), "--top"),
        max_per_world=max_per_world,
    )
    held = Holdout()
    if holdout_seeds is not None:
        text = holdout_seeds
        held = Holdout.read(text) if isinstance(text, str) else Holdout(tuple(text))
    started = time.perf_counter()
    with open_source(input_dir, database) as store:
        quality = {} if min_quality is None else _qualities(store)
        with store.reading() as connection:
            filters = replace(filters, experiments=named_experiments(connection, experiment))
            _check_names(connection, filters)
            found, steps, chosen = choose_episodes(
                session_facts(connection, sql), filters, quality
            )
            played = agent_settings(connection, {each.experiment_id for each in chosen})
        if output is None:
            return episodes_only(found, steps, chosen, time.perf_counter() - started)
        out = held.among({each.seed for each in chosen if each.seed is not None})
        about = {
            "command": command,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "provenance": _provenance(),
            "source": source_from(input_dir, store, Path(output)),
            "filters": filters.given(),
            "experiments": sorted({each.experiment_id for each in chosen}),
            "models": dict(Counter(each.model for each in chosen).most_common()),
            "holdout_seeds": sorted(out),
            # Rows of other modes show more or less of the past than a request did.
            PLAYED: played if plan.mode is Mode.CALL else {**played, "history": None},
        }
        built = build_dataset(
            store,
            chosen,
            plan,
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
    """The score of each completed trace."""
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


def _check_names(connection: Any, filters: "EpisodeFilters") -> None:
    """Refuse names that no episode can have.

    Raises:
        UsageError: An achievement or a hook is not known.
    """
    from assay.core.text import unknown
    from assay.crafter.rules import ACHIEVEMENTS
    from assay.store.session_facts import known_achievements, known_hooks

    if filters.require_achievements:
        names = [*ACHIEVEMENTS, *known_achievements(connection)]
        for name in filters.require_achievements:
            if name not in names:
                raise unknown("achievement", name, [*dict.fromkeys(names)])
    if filters.hooks:
        names = known_hooks(connection)
        for name in filters.hooks:
            if name not in names:
                raise unknown("hook", name, names, empty="no hook noticed anything in it")


def _note_worlds(built: "BuiltDataset", store: "Store | None") -> Path | None:
    """Let a store know which worlds were trained on; None where it cannot."""
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
    """The most bytes that this process has held in memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _provenance() -> dict[str, Any]:
    from assay.core.provenance import provenance

    return provenance().record()
