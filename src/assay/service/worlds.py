"""What the service does, without HTTP: validated requests in, `results` out.

Every method is synchronous and takes microseconds, so that nothing is ever half done when
somebody else asks. The in-process client calls it directly; only `step` makes JSON.
"""

import base64
import binascii
import dataclasses
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from assay.crafter import ACHIEVEMENTS, DIFFICULTIES, ITEMS, StepResult, World
from assay.crafter.rules import ACTIONS, AREA, WORLD_LENGTH
from assay.errors import InvalidField, SnapshotError, WorldFull

from .instances import Instance, Instances
from .observation import observe
from .requests import ENVIRONMENT, InitializeRequest, RestoreRequest, StepRequest
from .results import (
    Checkpoint,
    Started,
    StartedInfo,
    StepInfo,
    StepReply,
    Terminated,
    WorldObservation,
    adapter,
)

__all__ = ["DEFAULT_IDLE_TIMEOUT", "DEFAULT_INSTANCES", "Worlds"]

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
