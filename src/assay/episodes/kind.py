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
from assay.agents.user_agents import OwnAgent
from assay.crafter.rules import TASK
from assay.episodes.arms import arm_options
from assay.episodes.config import SETTINGS, ForkPoint, RunConfig
from assay.episodes.environments import RANDOM, OwnEnvironment, OwnWorld, environment_metadata
from assay.episodes.episode import EpisodeAttempt, EpisodePlayer, ReactPlayer
from assay.episodes.forks import beginning, forked_header
from assay.episodes.hooks import Hook
from assay.episodes.metrics import MetricSet
from assay.episodes.progress import EpisodeEnd
from assay.episodes.spec import EpisodeLimits, EpisodeSpec, difficulty_name, episode_metadata
from assay.episodes.user_agent import OwnPlayer
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

_WORKERS_OF_A_CLUSTER: Final = 1024
"""Assumed number of workers on a Ray cluster, which is unknown before the cluster is joined."""


class EpisodeParts(NamedTuple):
    """Parts that episodes need besides their configuration."""

    open_worlds: "Callable[[], WorldClient] | None" = None
    """Connects to a Crafter service, in the event loop that uses it; None without a service."""
    hooks: Sequence[type[Hook]] = ()
    """Hook classes, instantiated for each episode."""
    agents: Mapping[str, OwnAgent] = {}
    """User-defined agents, by their name in the configuration."""
    environment: OwnEnvironment | None = None
    """The environment, if it is not Crafter."""
    parent: Callable[[str], SessionRecord] | None = None
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
        self._opened = AsyncExitStack()
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
        tasks, again, forks = len(config.difficulties), config.replicates, config.forks
        before = _earlier_of_world(forks)

        def group(label: str) -> Group[EpisodeSpec]:
            def make(index: int) -> Trial[EpisodeSpec]:
                world, replicate = divmod(index, again)
                if forks:
                    spec = EpisodeSpec(
                        run_id=run.id,
                        arm=label,
                        episode=index,
                        seed=forks[world].seed,
                        task=forks[world].task,
                        replicate=before[world] * again + replicate,
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

            return Group(label, config.trials, make)

        return Plan(tuple(map(group, self._arms)))

    def header(self, trial: Trial[EpisodeSpec]) -> SessionHeader | SessionRecord:
        """Return the journal header of an episode; a fork also has the turns of its parent."""
        fork = trial.payload.fork
        if fork is None:
            return self._header(trial)
        point, read = self._config.forks[fork], self._made.parent
        assert read is not None, "who forks can read what is forked"
        header = forked_header(self._header(trial), point)
        return beginning(read(point.session), header, point.turn)

    def _header(self, trial: Trial[EpisodeSpec]) -> SessionHeader:
        spec, arm = trial.payload, self._arms[trial.payload.arm]
        environment = self._made.environment
        options = self._options_of(spec.arm)
        if environment is None:
            difficulty = self._config.difficulties[spec.task]
            name = difficulty_name(difficulty)
            task = f"{TASK}{name}"
            metadata = episode_metadata(difficulty, options, self._limits)
        else:
            name, task = None, environment.name
            metadata = environment_metadata(environment, options, self._limits)
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
            tools=self._player(arm, spec).tools,
            metadata=metadata,
        )

    async def attempt(
        self, trial: Trial[EpisodeSpec], recorder: Recorder, context: Context
    ) -> EpisodeEnd:
        """Play an episode to its end."""
        spec = trial.payload
        episode = EpisodeAttempt(
            self._player(self._arms[spec.arm], spec),
            await self._world(spec),
            self._limits_left(spec),
            hooks=self._made.hooks,
            hook_limit_s=self._config.decision_limit,
            recorder=recorder,
            context=context,
        )
        try:
            return await episode.play()
        except ReplayDiffers as error:
            # User code may have responded differently; built-in code cannot.
            theirs = [self._arms[spec.arm].agent, self._config.environment]
            if not any(theirs):
                raise
            said, _, _ = str(error).partition(";")
            raise UserCodeError(
                f"{said}: {' or '.join(filter(None, theirs))} must do the same again when it "
                "sees the same, whatever the time, other episodes or a random generator "
                "without a seed"
            ) from error

    async def close(self) -> None:
        """Close the connection to a service."""
        await self._opened.aclose()

    def capacities(
        self, run: PreparedRun[RunConfig], pool: "ModelPool | None"
    ) -> dict[str, ProviderCapacity]:
        """Return the capacity of each arm with a built-in model or a model of a provider.

        Other arms are left out. Nothing is returned if the user limits open episodes.
        """
        config = self._config
        usual = config.max_concurrent_episodes == SETTINGS["max_concurrent_episodes"].default
        if not usual or run.sources["max_concurrent_episodes"] not in ("default", "the run"):
            return {}
        here = 1 if config.executor == "asyncio" else config.workers or os.cpu_count() or 1
        if config.executor == "ray" and config.workers is None:
            here = _WORKERS_OF_A_CLUSTER
        found = {}
        settings = config.model_settings()
        for arm in self._arms.values():
            name = arm.model
            if arm.agent == RANDOM or (
                name is not None and arm.agent is None and is_builtin(name, settings)
            ):
                found[arm.label] = ProviderCapacity("builtin", lambda: here)
            elif pool is not None and name is not None and name in pool.addresses:
                provider = pool.entry(name).provider.name
                calls = partial(pool.calls_allowed, name)
                found[arm.label] = ProviderCapacity(provider, calls)
        return found

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
        environment = self._made.environment
        return environment is None or environment.deterministic

    @property
    def _made(self) -> EpisodeParts:
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

    def _limits_left(self, spec: EpisodeSpec) -> EpisodeLimits:
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

    def _options_of(self, label: str) -> AgentOptions:
        if label not in self._options:
            self._options[label] = arm_options(self._config, self._arms[label])
        return self._options[label]

    def _player(self, arm: Arm, spec: EpisodeSpec) -> EpisodePlayer:
        options, environment = self._options_of(arm.label), self._made.environment
        model = None if arm.model is None else self.models[arm.model]
        if arm.agent is not None:
            agents = self._made.agents
            if environment is not None:
                agents = {**agents, RANDOM: environment.random_agent()}
            return OwnPlayer(
                agents[arm.agent],
                model,
                seed=spec.seed,
                options=options,
                environment=environment,
                limit_s=self._config.decision_limit,
            )
        assert model is not None, "our agent asks a model"
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
        environment = self._made.environment
        if environment is None:
            return CRAFTER
        return PlainGame(environment.name, environment.rules, environment.actions or ())

    async def _world(self, spec: EpisodeSpec) -> EpisodeWorld:
        environment = self._made.environment
        if environment is not None:
            return OwnWorld(environment, spec.seed, self._config.decision_limit)
        difficulty, connect = self._config.difficulties[spec.task], self._made.open_worlds
        if connect is None:
            return CrafterWorld(spec.seed, difficulty)
        if self._service is None:
            self._service = connect()
            await self._opened.enter_async_context(self._service)
        return ServiceWorld(self._service, spec.seed, difficulty)


def _earlier_of_world(forks: Sequence[ForkPoint]) -> list[int]:
    """Return, for each fork point, the number of earlier fork points in the same world."""
    seen: Counter[tuple[int, int]] = Counter()
    earlier = []
    for point in forks:
        earlier.append(seen[point.task, point.seed])
        seen[point.task, point.seed] += 1
    return earlier
