"""An episode of a scripted policy; the world and the built-in models over HTTP."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.players import Episode
    from assay.service import Running as RunningService
    from assay.serving import Running as RunningModels

__all__ = ["play", "serve", "serve_models"]


def play(
    policy: str = "random",
    *,
    seed: int = 0,
    difficulty: "str | Mapping[str, Any]" = "classic",
    max_steps: int | None = None,
) -> "Episode":
    """An episode of a scripted policy; it is played by iterating over it."""
    from assay.crafter import World
    from assay.players import Episode, make_policy

    player = make_policy(policy, seed)
    return Episode(World(seed, difficulty), player, max_steps)


def serve(**settings: Any) -> "AbstractContextManager[RunningService]":
    """The world over HTTP in a thread, for as long as a `with` block takes.

    with assay.serve(port=0) as service: print(service.address)

    Args:
        **settings: By the names of `assay.service.Settings`: host, port, max_instances, …
    """
    from assay.service import Settings, running

    return running(Settings(**settings))


def serve_models(**settings: Any) -> "AbstractContextManager[RunningModels]":
    """The built-in models over HTTP in a thread, for as long as a `with` block takes.

    with assay.serve_models(port=0) as server: print(server.base_url)

    Args:
        **settings: By the names of `assay.serving.Settings`: host, port, aliases, faults, …
    """
    from assay.serving import Settings, running

    return running(Settings(**settings))
