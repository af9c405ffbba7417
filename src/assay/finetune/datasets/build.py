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
from assay.finetune.datasets.manifest import FORMAT, Lineage, RowFile, manifest_path
from assay.finetune.datasets.options import RowOptions
from assay.finetune.datasets.preferences import worlds_of
from assay.finetune.datasets.rows import RowMaker, mixed_number, starting_points, without_notes
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


def episodes_only(
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
        worlds={TRAIN: sorted_worlds(chosen)},
    )


def sorted_worlds(chosen: Sequence[ChosenEpisode]) -> list[tuple[str, int | None]]:
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
    work = RowMaker(plan)
    if plan.balance_actions:
        work.limits = _limits(store, chosen)
    held = {each.session_id for each in chosen if holdout is not None and holdout(each)}
    holdout_path = output.with_name(f"{output.stem}.holdout{output.suffix}")
    total = sum(episode.turns for episode in chosen)
    with ExitStack() as stack:
        lineage = stack.enter_context(Lineage.begun())
        columns = plan.columns(output)
        sinks = {TRAIN: RowFile(stack.enter_context(atomic_file(output)), columns)}
        if held:
            sinks[HOLDOUT] = RowFile(stack.enter_context(atomic_file(holdout_path)), columns)
        done = 0
        sizes = [(each.session_id, each.turns) for each in chosen]
        for group in worlds_of(chosen) if plan.is_preference else group_sessions(sizes):
            with store.reading() as connection:
                limit_memory(connection)
                sessions = load_conversations(connection, group)
                if plan.drop_notes:
                    sessions = [without_notes(session) for session in sessions]
                records = list(load_sessions(connection, group)) if plan.has_states else []
            if plan.is_preference:
                split = HOLDOUT if group[0] in held else TRAIN
                lineage.add(work.pairs_of(sessions, records, split, sinks[split]))
            else:
                work.starts = {
                    each.header.session_id: starting_points(each) for each in records
                }
                for session in sessions:
                    split = HOLDOUT if session.session_id in held else TRAIN
                    lineage.add(work.rows_of(session, split, sinks[split]))
            done += sum(len(session.calls) for session in sessions)
            progress(done, total)
        if not work.left.turns:
            raise nothing_left([*steps, *work.steps])
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
            split: sorted_worlds(
                [each for each in chosen if (each.session_id in held) == (split == HOLDOUT)]
            )
            for split in sinks
        }
        manifest = manifest_path(output)
        funnel = [*steps, *work.steps]
        lineage.write(
            manifest,
            {
                "format": FORMAT,
                **about,
                "plan": plan.given(),
                "files": files,
                "found": asdict(found),
                "funnel": [asdict(step) for step in funnel],
                "left": asdict(work.left),
                "worlds": worlds,
                "actions": dict(work.actions.most_common()),
            },
        )
    return BuiltDataset(
        path=output,
        holdout_path=holdout_path if held else None,
        manifest=manifest,
        found=found,
        funnel=funnel,
        left=work.left,
        rows=sinks[TRAIN].rows,
        holdout_rows=sinks[HOLDOUT].rows if held else 0,
        seconds=time.perf_counter() - started,
        worlds=worlds,
        actions=dict(work.actions.most_common()),
        dataset=str(files[TRAIN]["sha256"])[:20],
    )


_ADVICE: Final = {
    "messages are stored": "rows are made of messages, so play them again with 'assay run', or"
    " name a store that has them with --database",
    "completed": "'assay traces list' shows why they ended, and 'assay run --resume' tries"
    " those again that a server failed",
    "not a baseline": "--models takes baselines that it names",
    "can be played again": "this format needs episodes of Crafter that assay played",
    "another answer in the same state": "'assay fork' plays several futures of one state",
}
"""Advice for steps that do not belong to an option."""


def nothing_left(steps: Sequence[FunnelStep]) -> UsageError:
    """Build the error for an empty result; it names the filter that removed the rest."""
    last = next((step for step in reversed(steps) if step.removed.episodes), None)
    if last is None:
        return UsageError(
            "there is nothing to make rows of: the store has no episodes; play some with "
            "'assay run', or name another store with --database"
        )
    missing = ""
    if last.missing:
        missing = f", {last.missing:,} of them because the store does not say"
    advice = _ADVICE.get(last.name, "ask for less, and see the whole funnel with --stats-only")
    return UsageError(
        f"nothing is left to write: {last.name!r} removed the last "
        f"{counted(last.removed.episodes, 'episode')}{missing}; {advice}"
    )


def _limits(store: Store, chosen: Sequence[ChosenEpisode]) -> dict[str, int]:
    """Return for each first action the largest `mixed_number` whose row is kept.

    Every action keeps at most as many rows as the median action has.
    """
    by_action: dict[str, array[int]] = {}
    for group in group_sessions([(each.session_id, each.turns) for each in chosen]):
        with store.reading() as connection:
            limit_memory(connection)
            for session_id, turn, action in load_first_actions(connection, group):
                mixed = by_action.setdefault(action, array("Q"))
                mixed.append(mixed_number(session_id, turn))
    most = int(median(len(mixed) for mixed in by_action.values())) if by_action else 0
    return {
        action: sorted(mixed)[min(most, len(mixed)) - 1] for action, mixed in by_action.items()
    }
