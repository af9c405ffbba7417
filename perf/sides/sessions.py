"""Journals of sessions with the sizes of the workload, for what stores them."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from assay.episodes.arms import make_arms
from assay.episodes.config import RunConfig
from assay.runs.control import Limits, Retries
from assay.runs.engine import AsyncioExecutor, Rules, run_trials
from assay.runs.executors import InProcessExecutor
from assay.runs.prepare import make_run_record
from assay.store.records import RunRecord
from perf.peers import workload
from perf.sides.stubs import StubModel, stub_agent, stub_kind

__all__ = ["Journals", "make_journals"]


class Journals(NamedTuple):
    """A run, and its sessions as files."""

    run: RunRecord
    paths: list[Path]

    @property
    def turns(self) -> int:
        """Of all sessions."""
        return len(self.paths) * workload.TURNS


def make_journals(folder: Path, episodes: int) -> Journals:
    """Play episodes with stubs, and leave their journals in a folder."""
    config = RunConfig(
        models=("stub",), baselines=False, episodes=episodes, max_turns=workload.TURNS
    )
    run = make_run_record(config, make_arms(config, {}), "perf", "")
    # Only here: other rows play real episodes in the same process.
    with stub_agent():
        asyncio.run(_play(folder, config, run))
    return Journals(run, sorted(folder.glob("*.jsonl")))


async def _play(folder: Path, config: RunConfig, run: RunRecord) -> None:
    kind = stub_kind(config, StubModel())
    async with InProcessExecutor().open(kind) as start:
        body = lambda trial, context: start(trial, folder / f"{trial.id}.jsonl", context)  # noqa: E731
        await run_trials(
            kind.plan(run),
            AsyncioExecutor(body),
            Rules(limits=Limits(max_open=config.episodes), retries=Retries(seed=0)),
        )
    await kind.close()
