"""The worlds that are being played: bounded in number, forgotten when nobody asks for them."""

import math
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from assay._util.text import shown
from assay.crafter import World
from assay.errors import InstanceLimit, InvalidField, UnknownInstance

__all__ = ["Instance", "Instances"]

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
