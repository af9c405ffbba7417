"""The episode as a kind of trial: lists the episodes of a run, and plays one of them.

A kind is pickled to worker processes without keys, and without opened resources, which each
process opens for itself. Only built-in models are pickled with it; others stay in the driver.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from assay.agents.builtin import BuiltinModel
from assay.agents.chat_models import is_builtin
from assay.agents.options import AgentOptions
from assay.agents.prompts import CRAFTER, Game, PlainGame
from assay.agents.react import ReactAgent
from assay.agents.user_agents import UserAgent
from assay.crafter.rules import TASK
from assay.episodes.arms import make_arm_options
from assay.episodes.config import SETTINGS, ForkPoint, RunConfig
from assay.episodes.environments import (
    RANDOM,
    UserEnvironment,
    UserWorld,
    make_environment_metadata,
)
from assay.episodes.episode import EpisodeAttempt, EpisodePlayer, ReactPlayer
from assay.episodes.forks import copy_turns, make_fork_header
from assay.episodes.hooks import Hook
from assay.episodes.metrics import MetricSet
from assay.episodes.progress import EpisodeEnd
from assay.episodes.spec import (
    EpisodeLimits,
    EpisodeSpec,
    make_episode_metadata,
    name_difficulty,
)
from assay.episodes.user_agent import UserAgentPlayer
from assay.episodes.worlds import CrafterWorld, EpisodeWorld, ServiceWorld
from assay.errors import UserCodeError
from assay.runs.engine import Context
from assay.runs.kind import Arm, PreparedRun, ProviderCapacity, TrialKind
from assay.runs.plan import Group, Plan, Trial
from assay.store.recorder import Recorder, ReplayDiffers
from assay.store.records import RunRecord, SessionHeader, SessionRecord
from assay.types import ChatModel

if TYPE_CHECKING:
    from assay.crafter.service.client import WorldClient
    from assay.models.pool import ModelPool
    from assay.runs.run import RunResult
    from assay.store.store import Store

_ASSUMED_RAY_WORKERS: Final = 1024
"""Assumed number of workers on a Ray cluster, which is unknown before the cluster is joined."""


class EpisodeParts(NamedTuple):
    """Parts that episodes need besides their configuration."""

    open_worlds: "Callable[[], WorldClient] | None" = None
    """Connects to a Crafter service, in the event loop that uses it; None without a service."""
    hooks: Sequence[type[Hook]] = ()
    """Hook classes, instantiated for each episode."""
    agents: Mapping[str, UserAgent] = {}
    """User-defined agents, by their name in the configuration."""
    environment: UserEnvironment | None = None
    """The environment, if it is not Crafter."""
    read_parent: Callable[[str], SessionRecord] | None = None
    """Reads a stored session that episodes are forked from."""


class EpisodeKind(TrialKind[EpisodeSpec]):
    """Episodes of several arms, all in the same worlds."""

    name = "episode"

    def __init__(
        self,
        config: RunConfig,
        arms: Sequence[Arm],
        load: Callable[[RunConfig], EpisodeParts],
        models: Mapping[str, ChatModel],
        *,
        metrics: MetricSet | None = None,
        analyse: "Callable[[RunResult], Mapping[str, Any]] | None" = None,
    ) -> None:
        """Store the parts of episodes; worker processes do not get `metrics` and `analyse`.

        Args:
            config: Configuration of the run.
            arms: Arms of the run.
            load: Loads the other parts, once in each process.
            models: Models by name.
            metrics: User-defined metrics, computed at the end.
            analyse: Computes the aggregates of all episodes for the results file.
        """
        self.models = models
        self._metrics, self._analyse = metrics, analyse
        self._config, self._arms = config, {arm.label: arm for arm in arms}
        self._load = load
        self._parts: EpisodeParts | None = None
        self._resources = AsyncExitStack()
        self._service: WorldClient | None = None
        self._options: dict[str, AgentOptions] = {}

    def __getstate__(self) -> dict[str, Any]:
        config = copy(self._config)
        object.__setattr__(config, "openai_api_key", None)
        # Their replies depend only on the request, so they can run in any process.
        models = {
            name: model for name, model in self.models.items() if type(model) is BuiltinModel
        }
        arms = [*self._arms.values()]
        return {"config": config, "arms": arms, "load": self._load, "models": models}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
        # An error in user files must not be attributed to a trial.
        self._parts = self._load(self._config)

    def plan(self, run: RunRecord) -> Plan[EpisodeSpec]:
        """Return the plan: every arm plays the same worlds in the same order."""
        config = self._config
        tasks, replicates, forks = len(config.difficulties), config.replicates, config.forks
        earlier_forks = _count_earlier_forks(forks)

        def make_group(label: str) -> Group[EpisodeSpec]:
            def make_trial(index: int) -> Trial[EpisodeSpec]:
                world, replicate = divmod(index, replicates)
                if forks:
                    spec = EpisodeSpec(
                        run_id=run.id,
                        arm=label,
                        episode=index,
                        seed=forks[world].seed,
                        task=forks[world].task,
                        replicate=earlier_forks[world] * replicates + replicate,
                        fork=world,
                        future=replicate,
                    )
                    return Trial(spec.session_id, label, index, spec)
                spec = EpisodeSpec(
                    run_id=run.id,
                    arm=label,
                    episode=index,
                    seed=config.seed + world // tasks,
                    task=world % tasks,
                    replicate=replicate,
                )
                return Trial(spec.session_id, label, index, spec)

            return Group(label, config.trials, make_trial)

        return Plan(tuple(map(make_group, self._arms)))

    def header(self, trial: Trial[EpisodeSpec]) -> SessionHeader | SessionRecord:
        """Return the journal header of an episode; a fork also has the turns of its parent."""
        fork = trial.payload.fork
        if fork is None:
            return self._make_header(trial)
        point, read = self._config.forks[fork], self._loaded_parts.read_parent
        assert read is not None, "a run with forks can read their parents"
        header = make_fork_header(self._make_header(trial), point)
        return copy_turns(read(point.session), header, point.turn)

    def _make_header(self, trial: Trial[EpisodeSpec]) -> SessionHeader:
        spec, arm = trial.payload, self._arms[trial.payload.arm]
        environment = self._loaded_parts.environment
        options = self._find_options(spec.arm)
        if environment is None:
            difficulty = self._config.difficulties[spec.task]
            name = name_difficulty(difficulty)
            task = f"{TASK}{name}"
            metadata = make_episode_metadata(difficulty, options, self._limits)
        else:
            name, task = None, environment.name
            metadata = make_environment_metadata(environment, options, self._limits)
        if arm.agent is not None:
            metadata["own_agent"] = arm.agent
        return SessionHeader(
            session_id=spec.session_id,
            run_id=spec.run_id,
            experiment_id=spec.experiment_id,
            subject=spec.arm,
            task=task,
            seed=spec.seed,
            episode=spec.episode,
            replicate=spec.replicate,
            created_at=time.time(),
            difficulty=name,
            tools=self._make_player(arm, spec).tools,
            metadata=metadata,
        )

    async def attempt(
        self, trial: Trial[EpisodeSpec], recorder: Recorder, context: Context
    ) -> EpisodeEnd:
        """Play an episode to its end."""
        spec = trial.payload
        episode = EpisodeAttempt(
            self._make_player(self._arms[spec.arm], spec),
            await self._make_world(spec),
            self._compute_limits_left(spec),
            hooks=self._loaded_parts.hooks,
            hook_limit_s=self._config.decision_limit,
            recorder=recorder,
            context=context,
        )
        try:
            return await episode.play()
        except ReplayDiffers as error:
            # User code may have responded differently; built-in code cannot.
            user_code = [self._arms[spec.arm].agent, self._config.environment]
            if not any(user_code):
                raise
            difference, _, _ = str(error).partition(";")
            raise UserCodeError(
                f"{difference}: {' or '.join(filter(None, user_code))} must be deterministic: "
                "it must not depend on the time, other episodes or an unseeded random generator"
            ) from error

    async def close(self) -> None:
        """Close the connection to a service."""
        await self._resources.aclose()

    def capacities(
        self, run: PreparedRun[RunConfig], pool: "ModelPool | None"
    ) -> dict[str, ProviderCapacity]:
        """Return the capacity of each arm with a built-in model or a model of a provider.

        Other arms are left out. Nothing is returned if the user limits open episodes.
        """
        config = self._config
        is_default = (
            config.max_concurrent_episodes == SETTINGS["max_concurrent_episodes"].default
        )
        if not is_default or run.sources["max_concurrent_episodes"] not in (
            "default",
            "the run",
        ):
            return {}
        workers = 1 if config.executor == "asyncio" else config.workers or os.cpu_count() or 1
        if config.executor == "ray" and config.workers is None:
            workers = _ASSUMED_RAY_WORKERS
        capacities = {}
        settings = config.make_model_settings()
        for arm in self._arms.values():
            name = arm.model
            if arm.agent == RANDOM or (
                name is not None and arm.agent is None and is_builtin(name, settings)
            ):
                capacities[arm.label] = ProviderCapacity("builtin", lambda: workers)
            elif pool is not None and name is not None and name in pool.addresses:
                provider = pool.entry(name).provider.name
                calls = partial(pool.calls_allowed, name)
                capacities[arm.label] = ProviderCapacity(provider, calls)
        return capacities

    def measure(
        self, store: "Store", experiment_ids: Sequence[str], on_message: Callable[[str], None]
    ) -> None:
        """Compute user-defined metrics."""
        from assay.episodes.stored_metrics import apply_metrics

        if self._metrics is not None:
            limit_s = self._config.decision_limit
            apply_metrics(store, experiment_ids, self._metrics, on_message, limit_s=limit_s)

    def analyse(self, result: "RunResult") -> Mapping[str, Any]:
        """Return the aggregates of all episodes for the results file."""
        return {} if self._analyse is None else self._analyse(result)

    def resumes(self, trial: Trial[EpisodeSpec]) -> bool:
        """Return whether an interrupted episode can continue; if not, it restarts."""
        environment = self._loaded_parts.environment
        return environment is None or environment.deterministic

    @property
    def _loaded_parts(self) -> EpisodeParts:
        if self._parts is None:
            self._parts = self._load(self._config)
        return self._parts

    @property
    def _limits(self) -> EpisodeLimits:
        config = self._config
        return EpisodeLimits(
            turns=config.max_turns,
            steps=config.step_limit,
            tokens=config.token_limit,
            seconds=config.time_limit,
        )

    def _compute_limits_left(self, spec: EpisodeSpec) -> EpisodeLimits:
        """Return the limits minus the usage of the turns copied from the parent."""
        limits = self._limits
        if spec.fork is None:
            return limits
        point = self._config.forks[spec.fork]
        return replace(
            limits,
            tokens=None if limits.tokens is None else limits.tokens - point.tokens,
            seconds=None if limits.seconds is None else limits.seconds - point.seconds,
        )

    def _find_options(self, label: str) -> AgentOptions:
        if label not in self._options:
            self._options[label] = make_arm_options(self._config, self._arms[label])
        return self._options[label]

    def _make_player(self, arm: Arm, spec: EpisodeSpec) -> EpisodePlayer:
        options, environment = self._find_options(arm.label), self._loaded_parts.environment
        model = None if arm.model is None else self.models[arm.model]
        if arm.agent is not None:
            agents = self._loaded_parts.agents
            if environment is not None:
                agents = {**agents, RANDOM: environment.make_random_agent()}
            return UserAgentPlayer(
                agents[arm.agent],
                model,
                seed=spec.seed,
                options=options,
                environment=environment,
                limit_s=self._config.decision_limit,
            )
        assert model is not None, "the built-in agent calls a model"
        agent = ReactAgent(
            options,
            model=model.name,
            seed=spec.sampling_seed,
            max_turns=self._config.max_turns,
            game=self._game,
        )
        return ReactPlayer(agent, model)

    @cached_property
    def _game(self) -> Game:
        environment = self._loaded_parts.environment
        if environment is None:
            return CRAFTER
        return PlainGame(environment.name, environment.rules, environment.actions or ())

    async def _make_world(self, spec: EpisodeSpec) -> EpisodeWorld:
        environment = self._loaded_parts.environment
        if environment is not None:
            return UserWorld(environment, spec.seed, self._config.decision_limit)
        difficulty, connect = (
            self._config.difficulties[spec.task],
            self._loaded_parts.open_worlds,
        )
        if connect is None:
            return CrafterWorld(spec.seed, difficulty)
        if self._service is None:
            self._service = connect()
            await self._resources.enter_async_context(self._service)
        return ServiceWorld(self._service, spec.seed, difficulty)


def _count_earlier_forks(forks: Sequence[ForkPoint]) -> list[int]:
    """Return, for each fork point, the number of earlier fork points in the same world."""
    counts: Counter[tuple[int, int]] = Counter()
    earlier = []
    for point in forks:
        earlier.append(counts[point.task, point.seed])
        counts[point.task, point.seed] += 1
    return earlier
