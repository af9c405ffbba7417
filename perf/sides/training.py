"""Some updates of PPO with `mlp` on `classic`, in our worlds or in those of the package.

`python -m perf.sides.training ours|package UPDATES` prints processor seconds of a step, and
how many of them go to the environment, to the model in play, and to learning; and a number
that both sides share if they learned from the same games.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from assay.training.environments import (
    ENVIRONMENTS,
    EndedEpisode,
    EnvironmentEntry,
    TokenEnvironment,
    WorldStart,
    space_of,
)


class _Timed:
    """An environment whose processor time is counted."""

    def __init__(self, inner: TokenEnvironment) -> None:
        self._inner = inner
        self.space, self.goals = inner.space, inner.goals
        self.seconds = 0.0

    def __len__(self) -> int:
        return len(self._inner)

    def _counted(self, work: Callable[..., Any], *given: Any) -> Any:
        before = time.process_time()
        result = work(*given)
        self.seconds += time.process_time() - before
        return result

    def begin(self, which: Sequence[int], starts: Sequence[WorldStart]) -> None:
        self._counted(self._inner.begin, which, starts)

    def observe(self) -> Any:
        return self._counted(self._inner.observe)

    def step(self, actions: Any) -> Any:
        return self._counted(self._inner.step, actions)

    def ended(self) -> list[EndedEpisode]:
        ended: list[EndedEpisode] = self._counted(self._inner.ended)
        return ended

    def snapshot(self) -> list[bytes]:
        return []

    def restore(self, worlds: Sequence[bytes]) -> None:
        raise TypeError("a run that is measured is not resumed")


def measure_updates(side: str, updates: int) -> dict[str, float]:
    made: list[_Timed] = []

    def make(worlds: int, length: int) -> TokenEnvironment:
        if side == "package":
            from perf.peers.crafter_tokens import PackageWorlds

            made.append(_Timed(PackageWorlds(worlds, length)))
        else:
            from assay.training.crafter_worlds import CrafterWorlds

            made.append(_Timed(CrafterWorlds(worlds, length)))
        return made[-1]

    ENVIRONMENTS["measured"] = EnvironmentEntry(make, lambda: space_of("crafter"))
    from assay.training.config import TrainingConfig
    from assay.training.training_loop import TrainingProgress, train

    config = TrainingConfig(
        architecture="mlp",
        environment="measured",
        curriculum="classic",
        total_steps=10**9,
        eval_every=10**9,
        checkpoint_every=10**9,
    )
    per_update = config.worlds * config.rollout
    marks: list[tuple[float, float]] = []
    shares: list[tuple[float, float]] = []
    seen: list[float] = []

    def watch(progress: TrainingProgress) -> None:
        marks.append((time.process_time(), made[0].seconds))
        metrics = progress.metrics
        shares.append((metrics["time/model"], metrics["time/learning"]))
        seen.append(metrics["losses/value"])
        if len(marks) == updates:
            raise _UpdatesDone

    with tempfile.TemporaryDirectory() as folder, suppress(_UpdatesDone):
        train(config, Path(folder), watch=watch)
    # From the end of the first update, which pays for memory that the others use again.
    steps = per_update * (updates - 1)
    (began, env_began), (ended, env_ended) = marks[0], marks[-1]
    model, learning = np.mean(shares[1:], axis=0).tolist()
    return {
        "seconds": (ended - began) / steps,
        "environment": (env_ended - env_began) / steps,
        "model_share": model,
        "learning_share": learning,
        "environment_share": (env_ended - env_began) / (ended - began),
        "value_loss": seen[-1],
    }


class _UpdatesDone(Exception):
    """Raised after the requested number of updates."""


if __name__ == "__main__":
    print(json.dumps(measure_updates(sys.argv[1], int(sys.argv[2]))))
