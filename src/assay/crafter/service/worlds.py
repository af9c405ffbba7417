"""What the service does, without HTTP: validated requests in, `results` out.

Every method is synchronous and takes microseconds, so that nothing is ever half done when
somebody else asks. The in-process client calls it directly; only `step` makes JSON.
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

_REMEMBERED: Final = 4
"""How many replies an instance keeps for steps that come again."""


@dataclass(slots=True)
class Instance:
    """One world, and what its players have been told."""

    env_id: str
    world: World
    include: frozenset[str]
    total_reward: float = 0.0
    last_reward: float = 0.0
    task: dict[str, Any] | None = None
    """What the task said about the world, if there was one."""
    last_used: float = 0.0
    replies: OrderedDict[str, tuple[tuple[int, ...], bytes]] = field(
        default_factory=OrderedDict
    )
    """By request id: the actions, and what was answered, as JSON."""

    def recall(self, request_id: str, actions: tuple[int, ...]) -> bytes | None:
        """What was answered before to this id; None if it is new."""
        known = self.replies.get(request_id)
        if known is None:
            return None
        if known[0] != actions:
            words = "was used before for a step with other actions; give each step its own"
            raise InvalidField([("request_id", words, None)])
        return known[1]

    def remember(self, request_id: str, actions: tuple[int, ...], reply: bytes) -> None:
        """Keep a reply, and forget the oldest."""
        self.replies[request_id] = actions, reply
        if len(self.replies) > _REMEMBERED:
            self.replies.popitem(last=False)


class Instances:
    """At most `limit` instances; one that was idle for `idle_timeout` seconds is gone."""

    def __init__(self, limit: int, idle_timeout: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._idle_timeout = idle_timeout
        self._clock = clock
        # The one that was idle for longest comes first.
        self._by_id: OrderedDict[str, Instance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, env_id: object) -> bool:
        return isinstance(env_id, str) and env_id in self._by_id

    def check_room(self) -> None:
        """Raise InstanceLimit if there is no room for one more."""
        self.expire()
        if len(self._by_id) < self._limit:
            return
        oldest = next(iter(self._by_id.values()))
        wait = oldest.last_used + self._idle_timeout - self._clock()
        raise InstanceLimit(
            f"the service holds {len(self._by_id)} instances, and no more are allowed; "
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
        """Take in a world; `check_room` comes first."""
        instance = Instance(str(uuid.uuid4()), world, include, total_reward, task=task)
        instance.last_used = self._clock()
        self._by_id[instance.env_id] = instance
        return instance

    def get(self, env_id: str) -> Instance:
        """The instance of this id, which now counts as used."""
        instance = self._by_id.get(env_id)
        now = self._clock()
        if instance is None or now - instance.last_used > self._idle_timeout:
            self.expire()
            raise UnknownInstance(
                f"environment instance {shown(env_id)} not found: "
                f"it never was, was terminated, or was idle for {self._idle_timeout:g} s"
            )
        instance.last_used = now
        self._by_id.move_to_end(env_id)
        return instance

    def remove(self, env_id: str) -> Instance:
        """Forget an instance, and return it for a last look."""
        instance = self.get(env_id)
        del self._by_id[env_id]
        return instance

    def expire(self) -> None:
        """Forget those that were idle for too long."""
        now = self._clock()
        while self._by_id:
            oldest = next(iter(self._by_id.values()))
            if now - oldest.last_used <= self._idle_timeout:
                return
            del self._by_id[oldest.env_id]


def observe(instance: Instance) -> WorldObservation:
    """What the world of an instance is like now."""
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
    """The instances, and all that can be done with them.

    `seed` is that of the generator from which worlds are drawn that nobody chose.
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
        """Make a world."""
        if request.initial_state:
            words = "must be empty or null; a saved world comes back by 'restore'"
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
        told = {"seed": world.seed, "difficulty": world.difficulty_name} if task else None
        include = frozenset((config and config.include) or ())
        return self._started(self.instances.add(world, include, task=told))

    def restore(self, request: RestoreRequest) -> Started:
        """Make an instance of a saved world."""
        try:
            data = base64.b64decode(request.snapshot, validate=True)
        except (binascii.Error, ValueError):
            raise SnapshotError("not a valid saved world: it is not base64") from None
        world = World.restore(data)
        self.instances.check_room()
        include = frozenset(request.include or ())
        total = request.total_reward_episode
        return self._started(self.instances.add(world, include, total_reward=total))

    def _started(self, instance: Instance) -> Started:
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
        """Carry out actions in order, given by index, at least one."""
        return _play(self.instances.get(env_id), actions)

    def step(self, request: StepRequest) -> bytes:
        """Play, or answer again what was answered before, as JSON."""
        instance = self.instances.get(request.env_id)
        actions, request_id = request.actions, request.request_id
        reply = None if request_id is None else instance.recall(request_id, actions)
        if reply is None:
            reply = adapter(StepReply).dump_json(_play(instance, actions))
            if request_id is not None:
                instance.remember(request_id, actions, reply)
        return reply

    def terminate(self, env_id: str) -> Terminated:
        """Forget an instance."""
        instance = self.instances.remove(env_id)
        seen = adapter(WorldObservation).dump_python(observe(instance))
        return Terminated(
            {**seen, "status": "Environment terminated."}, {"instance_id": instance.env_id}
        )

    def checkpoint(self, env_id: str) -> Checkpoint:
        """Save the world of an instance, which goes on."""
        instance = self.instances.get(env_id)
        snapshot = base64.b64encode(instance.world.snapshot()).decode("ascii")
        include: Any = sorted(instance.include)
        return Checkpoint(env_id, snapshot, instance.total_reward, include)

    def metadata(self, env_id: str | None) -> dict[str, Any]:
        """Describe the environment, and an instance if it is named."""
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
            break  # what was played counts; the next request is told
        played.append(result)
        digests.append(f"{world.digest():016x}")
        if inventories is not None:
            inventories.append(world.inventory)
        if result.done:
            break
    rewards = [result.reward for result in played]
    # Rewards are tenths, and so are their sums, which floats alone would not keep.
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
