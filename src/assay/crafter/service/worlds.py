"""The operations of the service without HTTP: validated requests in, `results` out.

Every method is synchronous and takes microseconds, so that no request sees another one half
done. The in-process client calls `Worlds` directly; only `step` returns JSON. The number of
instances is limited, and idle ones expire.
"""

import base64
import binascii
import dataclasses
import math
import random
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from assay.core.text import shown
from assay.crafter.difficulty import DIFFICULTIES
from assay.crafter.rules import ACHIEVEMENTS, ACTIONS, AREA, ITEMS, WORLD_LENGTH
from assay.crafter.service.requests import (
    ENVIRONMENT,
    InitializeRequest,
    RestoreRequest,
    StepRequest,
)
from assay.crafter.service.results import (
    Checkpoint,
    LocalView,
    Started,
    StartedInfo,
    StepInfo,
    StepReply,
    Terminated,
    WorldObservation,
    adapter,
)
from assay.crafter.world import Ended, StepResult, World
from assay.errors import InstanceLimit, InvalidField, SnapshotError, UnknownInstance, WorldFull

_MAX_REPLIES: Final = 4
"""Number of replies an instance keeps for repeated requests."""


@dataclass(slots=True)
class Instance:
    """One world, with its rewards and recent replies."""

    env_id: str
    world: World
    include: frozenset[str]
    total_reward: float = 0.0
    last_reward: float = 0.0
    task: dict[str, Any] | None = None
    """The task's seed and difficulty, if there is a task."""
    last_used: float = 0.0
    replies: OrderedDict[str, tuple[tuple[int, ...], bytes]] = field(
        default_factory=OrderedDict
    )
    """Actions and reply as JSON, by request id."""

    def recall(self, request_id: str, actions: tuple[int, ...]) -> bytes | None:
        """Return the earlier reply to this request id, or None if the id is new."""
        earlier = self.replies.get(request_id)
        if earlier is None:
            return None
        if earlier[0] != actions:
            words = "was used before for a step with other actions; give each step its own"
            raise InvalidField([("request_id", words, None)])
        return earlier[1]

    def remember(self, request_id: str, actions: tuple[int, ...], reply: bytes) -> None:
        """Store a reply, and delete the oldest."""
        self.replies[request_id] = actions, reply
        if len(self.replies) > _MAX_REPLIES:
            self.replies.popitem(last=False)


class Instances:
    """At most `limit` instances; each expires after `idle_timeout` seconds without use."""

    def __init__(self, limit: int, idle_timeout: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._idle_timeout = idle_timeout
        self._clock = clock
        # The instance that was idle for longest is first.
        self._by_id: OrderedDict[str, Instance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, env_id: object) -> bool:
        return isinstance(env_id, str) and env_id in self._by_id

    def check_room(self) -> None:
        """Raise InstanceLimit if no instance can be added."""
        self.expire()
        if len(self._by_id) < self._limit:
            return
        oldest = next(iter(self._by_id.values()))
        wait = oldest.last_used + self._idle_timeout - self._clock()
        raise InstanceLimit(
            f"the service has {len(self._by_id)} instances, the maximum; "
            "terminate one, or try again later",
            retry_after=max(1, min(60, math.ceil(wait))),
        )

    def add(
        self,
        world: World,
        include: frozenset[str],
        *,
        total_reward: float = 0.0,
        task: dict[str, Any] | None = None,
    ) -> Instance:
        """Add a world; call `check_room` first."""
        instance = Instance(str(uuid.uuid4()), world, include, total_reward, task=task)
        instance.last_used = self._clock()
        self._by_id[instance.env_id] = instance
        return instance

    def get(self, env_id: str) -> Instance:
        """Return the instance with this id, and mark it as used."""
        instance = self._by_id.get(env_id)
        now = self._clock()
        if instance is None or now - instance.last_used > self._idle_timeout:
            self.expire()
            raise UnknownInstance(
                f"environment instance {shown(env_id)} not found: "
                f"it never existed, was terminated, or was idle for {self._idle_timeout:g} s"
            )
        instance.last_used = now
        self._by_id.move_to_end(env_id)
        return instance

    def remove(self, env_id: str) -> Instance:
        """Delete and return an instance."""
        instance = self.get(env_id)
        del self._by_id[env_id]
        return instance

    def expire(self) -> None:
        """Delete instances that were idle for too long."""
        now = self._clock()
        while self._by_id:
            oldest = next(iter(self._by_id.values()))
            if now - oldest.last_used <= self._idle_timeout:
                return
            del self._by_id[oldest.env_id]


def observe(instance: Instance) -> WorldObservation:
    """Return the current state of an instance."""
    world, include = instance.world, instance.include
    ended = world.ended
    view = world.view() if "view" in include else None
    return WorldObservation(
        inventory=world.inventory if view is None else view.inventory,
        achievements_status={name: count > 0 for name, count in world.achievements.items()},
        player_position=world.player_pos,
        player_direction=world.facing,
        semantic_map=world.semantic() if "semantic_map" in include else None,
        world_material_map=world.materials() if "world_material_map" in include else None,
        observation_image=world.render() if "observation_image" in include else None,
        view=None
        if view is None
        else LocalView(
            view.materials, view.objects, view.details, view.sleeping, view.daylight
        ),
        num_steps_taken=world.steps,
        max_steps_episode=world.length,
        error_info=None,
        reward_last_step=instance.last_reward,
        total_reward_episode=instance.total_reward,
        terminated=ended is Ended.DIED,
        truncated=world.done and ended is not Ended.DIED,
    )


DEFAULT_INSTANCES: Final = 1024
DEFAULT_IDLE_TIMEOUT: Final = 3600.0


class Worlds:
    """All instances, and the operations on them.

    `seed` is the seed of the generator that draws worlds for requests without a seed.
    """

    def __init__(
        self,
        *,
        seed: int,
        max_instances: int = DEFAULT_INSTANCES,
        idle_timeout: float = DEFAULT_IDLE_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seed = seed
        self.instances = Instances(max_instances, idle_timeout, clock)
        self._draw = random.Random(seed)

    def initialize(self, request: InitializeRequest) -> Started:
        """Create a world."""
        if request.initial_state:
            words = "must be empty or null; use 'restore' for a saved world"
            raise InvalidField([("initial_state", words, None)])
        self.instances.check_room()
        config, task = request.config, request.task_instance
        metadata = task.metadata if task else None
        choices = [choice for choice in (config, metadata) if choice is not None]
        seed = next((c.seed for c in choices if c.seed is not None), None)
        difficulty = next((c.difficulty for c in choices if c.difficulty is not None), None)
        try:
            world = World(
                self._draw.randrange(2**31) if seed is None else seed,
                difficulty or "classic",
                config.length if config and config.length else WORLD_LENGTH,
            )
        except WorldFull:
            words = "makes more creatures than a world has room for; lower their chances"
            raise InvalidField([("config.difficulty", words, None)]) from None
        facts = {"seed": world.seed, "difficulty": world.difficulty_name} if task else None
        include = frozenset((config and config.include) or ())
        return self._describe_start(self.instances.add(world, include, task=facts))

    def restore(self, request: RestoreRequest) -> Started:
        """Create an instance from a saved world."""
        try:
            data = base64.b64decode(request.snapshot, validate=True)
        except (binascii.Error, ValueError):
            raise SnapshotError("not a valid saved world: it is not base64") from None
        world = World.restore(data)
        self.instances.check_room()
        include = frozenset(request.include or ())
        total = request.total_reward_episode
        return self._describe_start(self.instances.add(world, include, total_reward=total))

    def _describe_start(self, instance: Instance) -> Started:
        world = instance.world
        name = world.difficulty_name
        info = StartedInfo(
            seed=world.seed,
            episode=world.episode,
            difficulty=name if name in DIFFICULTIES else dataclasses.asdict(world.difficulty),
            length=world.length,
            digest=f"{world.digest():016x}",
        )
        return Started(instance.env_id, observe(instance), world.done, info)

    def play(self, env_id: str, actions: Sequence[int]) -> StepReply:
        """Carry out one or more actions, given by index."""
        return _play(self.instances.get(env_id), actions)

    def step(self, request: StepRequest) -> bytes:
        """Carry out a step, or repeat the earlier reply to it; return JSON."""
        instance = self.instances.get(request.env_id)
        actions, request_id = request.actions, request.request_id
        reply = None if request_id is None else instance.recall(request_id, actions)
        if reply is None:
            reply = adapter(StepReply).dump_json(_play(instance, actions))
            if request_id is not None:
                instance.remember(request_id, actions, reply)
        return reply

    def terminate(self, env_id: str) -> Terminated:
        """Delete an instance."""
        instance = self.instances.remove(env_id)
        seen = adapter(WorldObservation).dump_python(observe(instance))
        return Terminated(
            {**seen, "status": "Environment terminated."}, {"instance_id": instance.env_id}
        )

    def checkpoint(self, env_id: str) -> Checkpoint:
        """Save the world of an instance; the instance is not changed."""
        instance = self.instances.get(env_id)
        snapshot = base64.b64encode(instance.world.snapshot()).decode("ascii")
        include: Any = sorted(instance.include)
        return Checkpoint(env_id, snapshot, instance.total_reward, include)

    def metadata(self, env_id: str | None) -> dict[str, Any]:
        """Describe the environment, and an instance if its id is given."""
        instance = None if env_id is None else self.instances.get(env_id)
        world = instance.world if instance else None
        return {
            "env_name": ENVIRONMENT,
            "env_id": env_id,
            "env_class": World.__name__,
            "has_task_instance": bool(instance and instance.task),
            "task_metadata": (instance and instance.task) or {},
            "has_engine": world is not None,
            "engine_info": world
            and {
                "seed": world.seed,
                "area": [AREA, AREA],
                "length": world.length,
                "step": world.steps,
                "difficulty": world.difficulty_name,
            },
            "actions": ACTIONS,
            "achievements": ACHIEVEMENTS,
            "items": ITEMS,
            "difficulties": list(DIFFICULTIES),
        }


def _play(instance: Instance, actions: Sequence[int]) -> StepReply:
    world = instance.world
    played: list[StepResult] = []
    digests: list[str] = []
    inventories: list[dict[str, int]] | None = [] if "inventories" in instance.include else None
    for action in actions:
        try:
            result = world.step(action)
        except WorldFull:
            if not played:
                raise
            break  # keep the completed steps; the next request raises the error
        played.append(result)
        digests.append(f"{world.digest():016x}")
        if inventories is not None:
            inventories.append(world.inventory)
        if result.done:
            break
    rewards = [result.reward for result in played]
    # Rewards and their sums are tenths; rounding removes floating-point errors.
    reward = round(sum(rewards), 6)
    instance.total_reward = round(instance.total_reward + reward, 6)
    instance.last_reward = rewards[-1]
    observation = observe(instance)
    info = StepInfo(
        terminated=observation.terminated,
        truncated=observation.truncated,
        rewards=rewards,
        unlocked=[list(result.unlocked) for result in played],
        no_effect=[result.no_effect and result.no_effect.value for result in played],
        digests=digests,
        inventories=inventories,
        skipped=len(actions) - len(played),
    )
    return StepReply(observation, reward, world.done, info)
