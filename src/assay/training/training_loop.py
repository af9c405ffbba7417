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
from assay.training.curricula import LearningProgress, find_curriculum, list_held_out_worlds
from assay.training.environments import ENVIRONMENTS, EndedEpisode, TokenEnvironment, WorldStart
from assay.training.folder import TrainingFolder, TrainState
from assay.training.networks import Network
from assay.training.ppo import Diverged, Experience, sample_actions, update

_EVALUATION_SEED: Final = 2_718_281
"""Seed of the actions in an evaluation."""

_ActionChooser = Callable[[NDArray[np.uint8], NDArray[np.int64], torch.Generator], Tensor]


def evaluate(
    network: Network, environment: TokenEnvironment, starts: Sequence[WorldStart]
) -> list[EndedEpisode]:
    """Play an episode in each world with a network; return them in the order of the worlds."""
    memory = network.make_blank_memory(len(environment))
    first = torch.ones(len(environment), dtype=torch.bool)

    def choose_actions(
        tokens: NDArray[np.uint8], playing: NDArray[np.int64], generator: torch.Generator
    ) -> Tensor:
        observations = torch.from_numpy(tokens[playing]).unsqueeze(0)
        output = network(observations, first[playing].unsqueeze(0), memory[playing])
        memory[playing] = output.memory
        first[:] = False
        return sample_actions(output.logits[0], generator)[0]

    with torch.no_grad():
        return _play_episodes(environment, starts, choose_actions)


def play_random_episodes(
    environment: TokenEnvironment, starts: Sequence[WorldStart]
) -> list[EndedEpisode]:
    """Play with uniformly random actions, as a reference for policies."""
    actions = len(environment.space.actions)
    return _play_episodes(
        environment,
        starts,
        lambda tokens, playing, generator: torch.randint(
            actions, (len(playing),), generator=generator
        ),
    )


def _play_episodes(
    environment: TokenEnvironment, starts: Sequence[WorldStart], choose_actions: _ActionChooser
) -> list[EndedEpisode]:
    environment.begin(range(len(environment)), starts)
    generator = torch.Generator().manual_seed(_EVALUATION_SEED)
    playing = np.arange(len(environment))
    actions = np.zeros(len(environment), np.int64)
    episodes: dict[int, EndedEpisode] = {}
    while len(playing):
        actions[playing] = choose_actions(environment.observe(), playing, generator).numpy()
        environment.step(actions)
        ended = environment.ended()
        if ended:
            episodes |= {episode.world: episode for episode in ended}
            playing = np.array([i for i in playing.tolist() if i not in episodes], np.int64)
    return [episodes[world] for world in range(len(environment))]


def summarize_episodes(episodes: Sequence[EndedEpisode]) -> dict[str, float]:
    """Return the means over episodes, and the score over their goals."""
    rates = np.array([episode.reached for episode in episodes]).mean(0)
    return {
        "reward": float(np.mean([episode.reward for episode in episodes])),
        "episode_length": float(np.mean([episode.length for episode in episodes])),
        "achievements": float(rates.sum()),
        "score": float(crafter_score(rates)),
    }


_WINDOW_EPISODES: Final = 100
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
    config = config.with_default_width()
    run = TrainingFolder(folder)
    with run.lock(), _use_threads(config.threads):
        run.prepare(config, _collect_versions(config))
        state = TrainState(run.read_status()["state"])
        if state in (TrainState.FINISHED, TrainState.DIVERGED):
            return _make_end(run, state)
        return _Training(config, run).run(watch, stop)


def _collect_versions(config: TrainingConfig) -> dict[str, str]:
    """Return the versions a run depends on, besides assay and its required packages."""
    versions = {"torch": torch.__version__, "threads": str(config.threads)}
    if package := ENVIRONMENTS[config.environment].package:
        versions[package] = version(package)
    return versions


def _make_end(run: TrainingFolder, state: TrainState) -> TrainingEnd:
    status = run.read_status()
    return TrainingEnd(
        state,
        status["step"],
        run.read_last_values(),
        checkpoints.find_latest(run.path),
        status["reason"],
    )


@contextmanager
def _use_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class _Clock:
    """Seconds by activity, since the last line of metrics."""

    seconds: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    @contextmanager
    def measure(self, activity: str) -> Iterator[None]:
        before = time.perf_counter()
        yield
        self.seconds[activity] = self.seconds.get(activity, 0.0) + time.perf_counter() - before

    def compute_metrics(self, steps: int) -> dict[str, float]:
        """Return the speed and the share of each activity, and restart the clock."""
        now = time.perf_counter()
        elapsed = now - self.started
        shares = {
            f"time/{activity}": seconds / elapsed for activity, seconds in self.seconds.items()
        }
        self.seconds, self.started = {}, now
        return {"time/steps_per_second": steps / elapsed, "time/seconds": elapsed, **shares}


class _Training:
    def __init__(self, config: TrainingConfig, run: TrainingFolder) -> None:
        self._config, self._run = config, run
        self._generator = torch.Generator().manual_seed(config.seed)
        architecture = architecture_named(config.architecture)
        self._network = architecture.network(
            config.space, config.resolved_width, self._generator
        )
        self._optimizer = torch.optim.Adam(self._network.parameters(), eps=1e-5, fused=True)
        tasks = find_curriculum(config.curriculum, config.environment)
        self._curriculum = LearningProgress(tasks, np.random.default_rng(config.seed))
        self._held_out = list_held_out_worlds(tasks, config.eval_worlds)
        self._environment: TokenEnvironment = config.make_environment(config.worlds)
        self._starts = np.ones(config.worlds, bool)
        self._memory = self._network.make_blank_memory(config.worlds)
        self._window: deque[tuple[float, int, tuple[bool, ...]]] = deque(
            maxlen=_WINDOW_EPISODES
        )
        self._episodes = 0
        self._step = 0
        self._checkpoint = checkpoints.find_latest(run.path)
        if self._checkpoint is None:
            self._environment.begin(
                range(config.worlds), [*self._curriculum.draw(config.worlds)]
            )
        else:
            self._resume(self._checkpoint)
        run.truncate(self._step)

    def _resume(self, checkpoint: Path) -> None:
        memory, state = checkpoints.read_checkpoint(checkpoint, self._network, self._optimizer)
        self._memory, self._step = memory, state["step"]
        checkpoints.restore_generator(self._generator, state["generator"])
        self._curriculum.restore(state["curriculum"])
        self._environment.restore([text.encode() for text in state["worlds"]])
        self._starts = np.array(state["starts"])
        self._window.extend(
            (reward, length, tuple(reached)) for reward, length, reached in state["window"]
        )
        self._episodes = state["episodes"]

    def _save_checkpoint(self) -> Path:
        state = {
            "generator": checkpoints.encode_generator(self._generator),
            "curriculum": self._curriculum.export_state(),
            "worlds": [world.decode() for world in self._environment.snapshot()],
            "starts": self._starts.tolist(),
            "window": list(self._window),
            "episodes": self._episodes,
        }
        self._checkpoint = checkpoints.write_checkpoint(
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
            rollout = self._play_rollout(clock, ended)
            try:
                with clock.measure("learning"):
                    done = before / config.total_steps
                    losses = update(
                        self._network, self._optimizer, rollout, config, done, self._generator
                    )
            except Diverged as error:
                reason = f"{error} is not finite in the update after step {before}"
                return self._finish(TrainState.DIVERGED, before, reason)
            self._step += config.worlds * config.rollout
            row = {
                **self._make_metrics(ended),
                **losses,
                **clock.compute_metrics(self._step - before),
            }
            finished = self._step >= config.total_steps
            if finished or _crosses_multiple(before, self._step, config.eval_every):
                with clock.measure("evaluation"):
                    row |= self._evaluate()
            self._run.append_row({"step": self._step, **row})
            stopping = not finished and stop()
            checkpoint = None
            if (
                finished
                or stopping
                or _crosses_multiple(before, self._step, config.checkpoint_every)
            ):
                checkpoint = self._save_checkpoint()
                self._run.write_status(TrainState.RUNNING, self._step, checkpoint)
            watch(TrainingProgress(self._step, config.total_steps, row, checkpoint))
            if stopping:
                return self._finish(TrainState.STOPPED, self._step)
        return self._finish(TrainState.FINISHED, self._step)

    def _finish(self, state: TrainState, step: int, reason: str | None = None) -> TrainingEnd:
        self._run.write_status(state, step, self._checkpoint, reason)
        return _make_end(self._run, state)

    def _play_rollout(self, clock: _Clock, ended: list[EndedEpisode]) -> Experience:
        """Play all worlds for the steps of a rollout."""
        config, space = self._config, self._environment.space
        shape = (config.rollout, config.worlds)
        tokens = np.empty((*shape, space.tokens, 3), np.uint8)
        starts = np.empty(shape, bool)
        rewards = np.empty(shape, np.float32)
        first_memory = self._memory
        choices = []
        with torch.no_grad():
            for step in range(config.rollout):
                with clock.measure("environment"):
                    tokens[step] = self._environment.observe()
                starts[step] = self._starts
                with clock.measure("model"):
                    output = self._run_network(tokens[step], starts[step])
                    actions, action_log_probs = sample_actions(
                        output.logits[0], self._generator
                    )
                    self._memory = output.memory
                choices.append((actions, action_log_probs, output.values[0]))
                with clock.measure("environment"):
                    rewards[step] = self._environment.step(actions.numpy())
                    self._restart_ended(ended)
            last = self._run_network(self._environment.observe(), self._starts)
        chosen, log_probs, values = (
            torch.stack(column) for column in zip(*choices, strict=True)
        )
        return Experience(
            tokens=torch.from_numpy(tokens),
            starts=torch.from_numpy(starts),
            memory=first_memory,
            actions=chosen,
            log_probs=log_probs,
            values=values,
            rewards=torch.from_numpy(rewards),
            last_value=last.values[0],
            last_starts=torch.from_numpy(self._starts),
        )

    def _run_network(self, tokens: Any, starts: Any) -> Any:
        observations = torch.from_numpy(tokens).unsqueeze(0)
        return self._network(observations, torch.from_numpy(starts).unsqueeze(0), self._memory)

    def _restart_ended(self, ended: list[EndedEpisode]) -> None:
        """Record the episodes that ended in this step, and start new ones in their worlds."""
        just_ended = self._environment.ended()
        self._starts = np.zeros(self._config.worlds, bool)
        if not just_ended:
            return
        for episode in just_ended:
            self._curriculum.update_averages(episode.start.task, episode.success)
            self._window.append((episode.reward, episode.length, episode.reached))
        self._episodes += len(just_ended)
        ended += just_ended
        which = [episode.world for episode in just_ended]
        self._starts[which] = True
        self._environment.begin(which, [*self._curriculum.draw(len(just_ended))])

    def _make_metrics(self, ended: Sequence[EndedEpisode]) -> dict[str, float]:
        """Return metrics of the episodes that ended in a rollout, and of the last 100."""
        row = {"overview/episodes": float(self._episodes)}
        if ended:
            row["overview/reward"] = float(np.mean([episode.reward for episode in ended]))
            row["overview/episode_length"] = float(
                np.mean([episode.length for episode in ended])
            )
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
            else _list_episodes(play_random_episodes(environment, self._held_out))
        )
        content = {
            "goals": self._environment.goals,
            "step": self._step,
            "policy": _list_episodes(episodes),
            "random": random,
        }
        atomic_write(path, json.dumps(content).encode())
        return {f"eval/{name}": value for name, value in summarize_episodes(episodes).items()}


def _list_episodes(episodes: Sequence[EndedEpisode]) -> list[dict[str, Any]]:
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


def _crosses_multiple(before: int, after: int, every: int) -> bool:
    """Return whether a multiple of `every` is in (before, after]."""
    return before // every != after // every


@contextmanager
def log_progress_to_wandb(
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
                    config={
                        **config.with_default_width().stored(),
                        **config.capacity._asdict(),
                    },
                    resume="allow",
                )
            )
        opened[0].log(dict(progress.metrics), step=progress.step)

    try:
        yield log
    finally:
        for run in opened:
            run.finish()
