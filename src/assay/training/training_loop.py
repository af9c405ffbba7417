"""One training run: play, learn, log, evaluate, save checkpoints, and resume exactly.

With the same configuration, on the same machine and with one thread, a run has the same curve
bit for bit, even if it was stopped or killed in between. Only `time/` metrics vary.

An evaluation plays one episode in each held-out world. The worlds and the seed of the actions
are the same for every run, so that runs are comparable. Logging to Weights & Biases is
optional, with the same metrics and steps as in the run's own files.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.core.files import atomic_write
from assay.stats.score import crafter_score
from assay.training import checkpoints
from assay.training.architectures import architecture_named
from assay.training.config import TrainingConfig
from assay.training.curricula import LearningProgress, curriculum_named, held_out
from assay.training.environments import ENVIRONMENTS
from assay.training.folder import TrainingFolder, TrainState
from assay.training.networks import Network
from assay.training.ppo import Diverged, Experience, sample, update
from assay.training.token_environment import EndedEpisode, TokenEnvironment, WorldStart

_SEED: Final = 2_718_281
"""Seed of the actions in an evaluation."""

_Choose = Callable[[NDArray[np.uint8], NDArray[np.int64], torch.Generator], Tensor]


def evaluate(
    network: Network, environment: TokenEnvironment, starts: Sequence[WorldStart]
) -> list[EndedEpisode]:
    """Play an episode in each world with a network; return them in the order of the worlds."""
    memory = network.blank(len(environment))
    first = torch.ones(len(environment), dtype=torch.bool)

    def choose(
        tokens: NDArray[np.uint8], playing: NDArray[np.int64], generator: torch.Generator
    ) -> Tensor:
        seen = torch.from_numpy(tokens[playing]).unsqueeze(0)
        answer = network(seen, first[playing].unsqueeze(0), memory[playing])
        memory[playing] = answer.memory
        first[:] = False
        return sample(answer.logits[0], generator)[0]

    with torch.no_grad():
        return _play(environment, starts, choose)


def random_episodes(
    environment: TokenEnvironment, starts: Sequence[WorldStart]
) -> list[EndedEpisode]:
    """Play with uniformly random actions, as a reference for policies."""
    actions = len(environment.space.actions)
    return _play(
        environment,
        starts,
        lambda tokens, playing, generator: torch.randint(
            actions, (len(playing),), generator=generator
        ),
    )


def _play(
    environment: TokenEnvironment, starts: Sequence[WorldStart], choose: _Choose
) -> list[EndedEpisode]:
    environment.begin(range(len(environment)), starts)
    generator = torch.Generator().manual_seed(_SEED)
    playing = np.arange(len(environment))
    actions = np.zeros(len(environment), np.int64)
    episodes: dict[int, EndedEpisode] = {}
    while len(playing):
        actions[playing] = choose(environment.observe(), playing, generator).numpy()
        environment.step(actions)
        ended = environment.ended()
        if ended:
            episodes |= {episode.world: episode for episode in ended}
            playing = np.array([i for i in playing.tolist() if i not in episodes], np.int64)
    return [episodes[world] for world in range(len(environment))]


def summary(episodes: Sequence[EndedEpisode]) -> dict[str, float]:
    """Return the means over episodes, and the score over their goals."""
    rates = np.array([episode.reached for episode in episodes]).mean(0)
    return {
        "reward": float(np.mean([episode.reward for episode in episodes])),
        "episode_length": float(np.mean([episode.length for episode in episodes])),
        "achievements": float(rates.sum()),
        "score": float(crafter_score(rates)),
    }


_WINDOW: Final = 100
"""Number of latest episodes over which scores and success rates are computed."""


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """State of a run after an update."""

    step: int
    total: int
    metrics: Mapping[str, float]
    """Metrics logged in this update."""
    checkpoint: Path | None
    """Checkpoint written in this update, if any."""


@dataclass(frozen=True, slots=True)
class TrainingEnd:
    """Result of a run that ended or stopped."""

    state: TrainState
    steps: int
    metrics: Mapping[str, float]
    """Last value of each metric."""
    checkpoint: Path | None
    """The last checkpoint, if any."""
    reason: str | None = None
    """For a run that diverged: the metric, and the step."""


def train(
    config: TrainingConfig,
    folder: Path,
    *,
    watch: Callable[[TrainingProgress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> TrainingEnd:
    """Train in a folder, or resume an earlier call with the same settings there.

    Args:
        config: Settings of the run.
        folder: Folder for all files; see `folder`.
        watch: Called after each update.
        stop: Called after each update; if it returns True, a checkpoint is written and the
            run stops.

    Raises:
        UsageError: The folder contains something else or a damaged checkpoint, or another
            process trains there.
        OutputError: A file cannot be written.
    """
    config = config.resolved()
    run = TrainingFolder(folder)
    with run.held(), _threads(config.threads):
        run.begin(config, _versions(config))
        state = TrainState(run.status()["state"])
        if state in (TrainState.FINISHED, TrainState.DIVERGED):
            return _end(run, state)
        return _Training(config, run).run(watch, stop)


def _versions(config: TrainingConfig) -> dict[str, str]:
    """Return the versions a run depends on, besides assay and its required packages."""
    versions = {"torch": torch.__version__, "threads": str(config.threads)}
    if package := ENVIRONMENTS[config.environment].package:
        versions[package] = version(package)
    return versions


def _end(run: TrainingFolder, state: TrainState) -> TrainingEnd:
    status = run.status()
    return TrainingEnd(
        state, status["step"], run.last_row(), checkpoints.latest(run.path), status["reason"]
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class _Clock:
    """Seconds by activity, since the last line of metrics."""

    spent: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        before = time.perf_counter()
        yield
        self.spent[what] = self.spent.get(what, 0.0) + time.perf_counter() - before

    def metrics(self, steps: int) -> dict[str, float]:
        """Return the speed and the share of each activity, and restart the clock."""
        now = time.perf_counter()
        seconds = now - self.began
        shares = {f"time/{what}": spent / seconds for what, spent in self.spent.items()}
        self.spent, self.began = {}, now
        return {"time/steps_per_second": steps / seconds, "time/seconds": seconds, **shares}


class _Training:
    def __init__(self, config: TrainingConfig, run: TrainingFolder) -> None:
        self._config, self._run = config, run
        self._generator = torch.Generator().manual_seed(config.seed)
        architecture = architecture_named(config.architecture)
        self._network = architecture.network(
            config.space, config.resolved_width, self._generator
        )
        self._optimizer = torch.optim.Adam(self._network.parameters(), eps=1e-5, fused=True)
        tasks = curriculum_named(config.curriculum, config.environment)
        self._curriculum = LearningProgress(tasks, np.random.default_rng(config.seed))
        self._held_out = held_out(tasks, config.eval_worlds)
        self._environment: TokenEnvironment = config.make_environment(config.worlds)
        self._starts = np.ones(config.worlds, bool)
        self._memory = self._network.blank(config.worlds)
        self._window: deque[tuple[float, int, tuple[bool, ...]]] = deque(maxlen=_WINDOW)
        self._episodes = 0
        self._step = 0
        self._checkpoint = checkpoints.latest(run.path)
        if self._checkpoint is None:
            self._environment.begin(
                range(config.worlds), [*self._curriculum.draw(config.worlds)]
            )
        else:
            self._resume(self._checkpoint)
        run.truncate(self._step)

    def _resume(self, checkpoint: Path) -> None:
        memory, state = checkpoints.read(checkpoint, self._network, self._optimizer)
        self._memory, self._step = memory, state["step"]
        checkpoints.set_generator(self._generator, state["generator"])
        self._curriculum.restore(state["curriculum"])
        self._environment.restore([text.encode() for text in state["worlds"]])
        self._starts = np.array(state["starts"])
        self._window.extend(
            (reward, length, tuple(reached)) for reward, length, reached in state["window"]
        )
        self._episodes = state["episodes"]

    def _keep(self) -> Path:
        state = {
            "generator": checkpoints.generator_text(self._generator),
            "curriculum": self._curriculum.state(),
            "worlds": [world.decode() for world in self._environment.snapshot()],
            "starts": self._starts.tolist(),
            "window": list(self._window),
            "episodes": self._episodes,
        }
        self._checkpoint = checkpoints.write(
            self._run.path,
            self._step,
            self._config,
            self._network,
            self._optimizer,
            self._memory,
            state,
        )
        return self._checkpoint

    def run(
        self, watch: Callable[[TrainingProgress], None], stop: Callable[[], bool]
    ) -> TrainingEnd:
        config, clock = self._config, _Clock()
        self._run.write_status(TrainState.RUNNING, self._step, self._checkpoint)
        while self._step < config.total_steps:
            before, ended = self._step, list[EndedEpisode]()
            rollout = self._play(clock, ended)
            try:
                with clock.on("learning"):
                    done = before / config.total_steps
                    losses = update(
                        self._network, self._optimizer, rollout, config, done, self._generator
                    )
            except Diverged as error:
                reason = f"{error} is not a number in the update after step {before}"
                return self._finish(TrainState.DIVERGED, before, reason)
            self._step += config.worlds * config.rollout
            row = {**self._told(ended), **losses, **clock.metrics(self._step - before)}
            finished = self._step >= config.total_steps
            if finished or _crosses(before, self._step, config.eval_every):
                with clock.on("evaluation"):
                    row |= self._evaluate()
            self._run.add({"step": self._step, **row})
            stopping = not finished and stop()
            checkpoint = None
            if finished or stopping or _crosses(before, self._step, config.checkpoint_every):
                checkpoint = self._keep()
                self._run.write_status(TrainState.RUNNING, self._step, checkpoint)
            watch(TrainingProgress(self._step, config.total_steps, row, checkpoint))
            if stopping:
                return self._finish(TrainState.STOPPED, self._step)
        return self._finish(TrainState.FINISHED, self._step)

    def _finish(self, state: TrainState, step: int, reason: str | None = None) -> TrainingEnd:
        self._run.write_status(state, step, self._checkpoint, reason)
        return _end(self._run, state)

    def _play(self, clock: _Clock, ended: list[EndedEpisode]) -> Experience:
        """Play all worlds for the steps of a rollout."""
        config, space = self._config, self._environment.space
        shape = (config.rollout, config.worlds)
        tokens = np.empty((*shape, space.tokens, 3), np.uint8)
        starts = np.empty(shape, bool)
        rewards = np.empty(shape, np.float32)
        before = self._memory
        said = []
        with torch.no_grad():
            for step in range(config.rollout):
                with clock.on("environment"):
                    tokens[step] = self._environment.observe()
                starts[step] = self._starts
                with clock.on("model"):
                    answer = self._ask(tokens[step], starts[step])
                    actions, chances = sample(answer.logits[0], self._generator)
                    self._memory = answer.memory
                said.append((actions, chances, answer.values[0]))
                with clock.on("environment"):
                    rewards[step] = self._environment.step(actions.numpy())
                    self._begin_again(ended)
            last = self._ask(self._environment.observe(), self._starts)
        chosen, log_chances, values = (
            torch.stack(column) for column in zip(*said, strict=True)
        )
        return Experience(
            tokens=torch.from_numpy(tokens),
            starts=torch.from_numpy(starts),
            memory=before,
            actions=chosen,
            log_chances=log_chances,
            values=values,
            rewards=torch.from_numpy(rewards),
            last_value=last.values[0],
            last_starts=torch.from_numpy(self._starts),
        )

    def _ask(self, tokens: Any, starts: Any) -> Any:
        seen = torch.from_numpy(tokens).unsqueeze(0)
        return self._network(seen, torch.from_numpy(starts).unsqueeze(0), self._memory)

    def _begin_again(self, ended: list[EndedEpisode]) -> None:
        """Record the episodes that ended in this step, and start new ones in their worlds."""
        now = self._environment.ended()
        self._starts = np.zeros(self._config.worlds, bool)
        if not now:
            return
        for episode in now:
            self._curriculum.learned(episode.start.task, episode.success)
            self._window.append((episode.reward, episode.length, episode.reached))
        self._episodes += len(now)
        ended += now
        which = [episode.world for episode in now]
        self._starts[which] = True
        self._environment.begin(which, [*self._curriculum.draw(len(now))])

    def _told(self, ended: Sequence[EndedEpisode]) -> dict[str, float]:
        """Return metrics of the episodes that ended in a rollout, and of the last 100."""
        row = {"overview/episodes": float(self._episodes)}
        if ended:
            row["overview/reward"] = float(np.mean([each.reward for each in ended]))
            row["overview/episode_length"] = float(np.mean([each.length for each in ended]))
        if self._window:
            rates = np.array([reached for _, _, reached in self._window]).mean(0)
            row[f"{self._config.environment}/score"] = float(crafter_score(rates))
            for goal, rate in zip(self._environment.goals, rates.tolist(), strict=True):
                row[f"achievements/{goal}"] = rate
        return row

    def _evaluate(self) -> dict[str, float]:
        """Play the held-out worlds, save the episodes, and return their means."""
        environment = self._config.make_environment(self._config.eval_worlds)
        episodes = evaluate(self._network, environment, self._held_out)
        path = self._run.path / "evaluation.json"
        random = (
            json.loads(path.read_bytes())["random"]
            if path.exists()
            else _listed(random_episodes(environment, self._held_out))
        )
        told = {
            "goals": self._environment.goals,
            "step": self._step,
            "policy": _listed(episodes),
            "random": random,
        }
        atomic_write(path, json.dumps(told).encode())
        return {f"eval/{name}": value for name, value in summary(episodes).items()}


def _listed(episodes: Sequence[EndedEpisode]) -> list[dict[str, Any]]:
    return [
        {
            "task": episode.start.task.name,
            "seed": episode.start.seed,
            "reward": episode.reward,
            "length": episode.length,
            "reached": [int(reached) for reached in episode.reached],
        }
        for episode in episodes
    ]


def _crosses(before: int, after: int, every: int) -> bool:
    """Return whether a multiple of `every` is in (before, after]."""
    return before // every != after // every


@contextmanager
def logged_to_wandb(
    config: TrainingConfig, folder: Path
) -> Iterator[Callable[[TrainingProgress], None]]:
    """Yield a callback that logs progress to W&B; the run there has the folder's name."""
    if config.wandb == "off":
        yield lambda progress: None
        return
    import wandb

    opened: list[Any] = []

    def log(progress: TrainingProgress) -> None:
        # Opened late, because the folder must not contain anything before the run has started.
        if not opened:
            opened.append(
                wandb.init(
                    project="assay",
                    id=folder.name,
                    name=folder.name,
                    dir=str(folder),
                    mode=config.wandb,
                    config={**config.resolved().stored(), **config.capacity._asdict()},
                    resume="allow",
                )
            )
        opened[0].log(dict(progress.metrics), step=progress.step)

    try:
        yield log
    finally:
        for run in opened:
            run.finish()
