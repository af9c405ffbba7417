"""Journals of sessions with the sizes of the workload, for what stores them."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from assay.metrics import DEFAULT_HOOKS
from assay.rollouts import RunConfig, play_all
from assay.rollouts.record import episode_settings, make_plan, run_record
from assay.traces.records import RunRecord
from assay.trials import Limits, Retries
from perf.peers import workload
from perf.sides.stubs import StubModel, StubWorlds, use_stub_agent

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
    use_stub_agent()
    config = RunConfig(
        models=("stub",), baselines=False, episodes=episodes, max_turns=workload.TURNS
    )
    paths: list[Path] = []
    asyncio.run(
        play_all(
            make_plan(config, "perf"),
            episode_settings(config),
            models={"stub": StubModel()},
            worlds=StubWorlds(),
            hooks=DEFAULT_HOOKS,
            journal=lambda session: folder / f"{session}.jsonl",
            ended=paths.append,
            limits=Limits(max_open=episodes),
            retries=Retries(seed=0),
        )
    )
    return Journals(run_record(config, "perf", ""), sorted(paths))
