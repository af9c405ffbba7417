"""Building a dataset: rows are made from the chosen episodes, written to files and counted.

Sessions are read in batches, so memory does not grow with the number of turns. Files are
written atomically.
"""

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from assay.core.files import atomic_file
from assay.core.text import counted
from assay.errors import UsageError
from assay.finetune.datasets.filters import ChosenEpisode, FunnelStep, Tally
from assay.finetune.datasets.manifest import FORMAT, Lineage, RowFile, get_manifest_path
from assay.finetune.datasets.options import RowOptions
from assay.finetune.datasets.preferences import group_by_world
from assay.finetune.datasets.rows import RowMaker, hash_turn, make_state_fields, remove_notes
from assay.store.conversations import (
    group_sessions,
    limit_memory,
    load_conversations,
    load_first_actions,
)
from assay.store.load import load_sessions
from assay.store.store import Store

TRAIN: Final = "train"
HOLDOUT: Final = "holdout"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltDataset:
    """A built dataset, and its statistics."""

    path: Path | None
    """None if nothing was written."""
    holdout_path: Path | None
    manifest: Path | None
    found: Tally
    funnel: Sequence[FunnelStep]
    left: Tally
    rows: int
    holdout_rows: int
    seconds: float
    worlds: Mapping[str, Sequence[tuple[str, int | None]]]
    """Worlds of each split, as task and seed."""
    actions: Mapping[str, int] = field(default_factory=dict)
    """Number of rows by first action."""
    dataset: str = ""
    """Id of the dataset in the database: the start of the training file's SHA-256."""
    card: Path | None = None
    """Dataset card in Markdown, if written."""
    noted_in: Path | None = None
    """Database that has recorded the training worlds."""


def summarize_episodes(
    found: Tally, steps: Sequence[FunnelStep], chosen: Sequence[ChosenEpisode], seconds: float
) -> BuiltDataset:
    """Return the statistics of the filtered episodes, without rows."""
    left = Tally()
    for episode in chosen:
        left.add(episode.turns, episode.tokens)
    return BuiltDataset(
        path=None,
        holdout_path=None,
        manifest=None,
        found=found,
        funnel=steps,
        left=left,
        rows=0,
        holdout_rows=0,
        seconds=seconds,
        worlds={TRAIN: list_worlds(chosen)},
    )


def list_worlds(chosen: Sequence[ChosenEpisode]) -> list[tuple[str, int | None]]:
    """Return the distinct worlds of episodes, sorted."""
    worlds = {(episode.task, episode.seed) for episode in chosen}
    return sorted(worlds, key=lambda world: (world[0], world[1] is None, world[1] or 0))


def build_dataset(
    store: Store,
    chosen: Sequence[ChosenEpisode],
    plan: RowOptions,
    *,
    found: Tally,
    steps: Sequence[FunnelStep],
    output: Path,
    holdout: Callable[[ChosenEpisode], bool] | None = None,
    about: Mapping[str, Any] = {},
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> BuiltDataset:
    """Write the rows of episodes, and their manifest.

    Args:
        store: Database with the episodes.
        chosen: Episodes that passed the filters.
        plan: Options for making rows.
        found: Counts before the filters.
        steps: Counts removed by each filter.
        output: The file to write, JSON Lines or Parquet.
        holdout: Returns whether an episode is held out; its rows go to a separate file.
        about: Additional fields of the manifest.
        progress: Called with the number of turns done and the total.

    Raises:
        UsageError: No rows are left to write.
    """
    started = time.perf_counter()
    maker = RowMaker(plan)
    if plan.balance_actions:
        maker.limits = _compute_action_limits(store, chosen)
    held_out = {
        episode.session_id for episode in chosen if holdout is not None and holdout(episode)
    }
    holdout_path = output.with_name(f"{output.stem}.holdout{output.suffix}")
    total = sum(episode.turns for episode in chosen)
    with ExitStack() as stack:
        lineage = stack.enter_context(Lineage.create())
        columns = plan.get_columns(output)
        sinks = {TRAIN: RowFile(stack.enter_context(atomic_file(output)), columns)}
        if held_out:
            sinks[HOLDOUT] = RowFile(stack.enter_context(atomic_file(holdout_path)), columns)
        done = 0
        sizes = [(episode.session_id, episode.turns) for episode in chosen]
        for group in group_by_world(chosen) if plan.is_preference else group_sessions(sizes):
            with store.reading() as connection:
                limit_memory(connection)
                sessions = load_conversations(connection, group)
                if plan.drop_notes:
                    sessions = [remove_notes(session) for session in sessions]
                records = list(load_sessions(connection, group)) if plan.has_states else []
            if plan.is_preference:
                split = HOLDOUT if group[0] in held_out else TRAIN
                lineage.add(maker.write_pairs(sessions, records, split, sinks[split]))
            else:
                maker.starts = {
                    episode.header.session_id: make_state_fields(episode) for episode in records
                }
                for session in sessions:
                    split = HOLDOUT if session.session_id in held_out else TRAIN
                    lineage.add(maker.write_rows(session, split, sinks[split]))
            done += sum(len(session.calls) for session in sessions)
            progress(done, total)
        if not maker.left.turns:
            raise make_empty_error([*steps, *maker.steps])
        files = {
            split: {
                "file": path.name,
                "rows": sinks[split].rows,
                "sha256": sinks[split].close(),
            }
            for split, path in ((TRAIN, output), (HOLDOUT, holdout_path))
            if split in sinks
        }
        worlds = {
            split: list_worlds(
                [
                    episode
                    for episode in chosen
                    if (episode.session_id in held_out) == (split == HOLDOUT)
                ]
            )
            for split in sinks
        }
        manifest = get_manifest_path(output)
        funnel = [*steps, *maker.steps]
        lineage.write(
            manifest,
            {
                "format": FORMAT,
                **about,
                "plan": plan.as_json(),
                "files": files,
                "found": asdict(found),
                "funnel": [asdict(step) for step in funnel],
                "left": asdict(maker.left),
                "worlds": worlds,
                "actions": dict(maker.actions.most_common()),
            },
        )
    return BuiltDataset(
        path=output,
        holdout_path=holdout_path if held_out else None,
        manifest=manifest,
        found=found,
        funnel=funnel,
        left=maker.left,
        rows=sinks[TRAIN].rows,
        holdout_rows=sinks[HOLDOUT].rows if held_out else 0,
        seconds=time.perf_counter() - started,
        worlds=worlds,
        actions=dict(maker.actions.most_common()),
        dataset=str(files[TRAIN]["sha256"])[:20],
    )


_STEP_ADVICE: Final = {
    "messages are stored": "rows need stored messages; run the episodes again with 'assay run',"
    " or name a database that has them with --database",
    "completed": "'assay traces list' shows why they ended; 'assay run --resume' retries those"
    " that ended with an infrastructure error",
    "not a baseline": "name baselines with --models to include them",
    "can be played again": "this format needs Crafter episodes recorded by assay",
    "another answer in the same state": "'assay fork' plays several continuations of one state",
}
"""Advice for steps that do not belong to an option."""


def make_empty_error(steps: Sequence[FunnelStep]) -> UsageError:
    """Build the error for an empty result; it names the filter that removed the rest."""
    last = next((step for step in reversed(steps) if step.removed.episodes), None)
    if last is None:
        return UsageError(
            "the database has no episodes; play some with 'assay run', or name another "
            "database with --database"
        )
    missing = ""
    if last.missing:
        missing = f", {last.missing:,} of them because the value is missing"
    advice = _STEP_ADVICE.get(last.name, "relax the filters; --stats-only shows all of them")
    return UsageError(
        f"no rows are left: {last.name!r} removed the last "
        f"{counted(last.removed.episodes, 'episode')}{missing}; {advice}"
    )


def _compute_action_limits(store: Store, chosen: Sequence[ChosenEpisode]) -> dict[str, int]:
    """Return for each first action the largest `mixed_number` whose row is kept.

    Every action keeps at most as many rows as the median action has.
    """
    by_action: dict[str, array[int]] = {}
    for group in group_sessions([(episode.session_id, episode.turns) for episode in chosen]):
        with store.reading() as connection:
            limit_memory(connection)
            for session_id, turn, action in load_first_actions(connection, group):
                hashes = by_action.setdefault(action, array("Q"))
                hashes.append(hash_turn(session_id, turn))
    limit = int(median(len(hashes) for hashes in by_action.values())) if by_action else 0
    return {
        action: sorted(hashes)[min(limit, len(hashes)) - 1]
        for action, hashes in by_action.items()
    }
