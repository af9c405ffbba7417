"""An episode of a scripted policy; the world and the built-in models over HTTP."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.crafter.players.episode import PolicyEpisode
    from assay.crafter.service.app import RunningService as RunningService
    from assay.finetune.service.server import RunningFinetune as RunningFinetune
    from assay.models.serving.app import RunningModels as RunningModels


def play(
    policy: str = "random",
    *,
    seed: int = 0,
    difficulty: "str | Mapping[str, Any]" = "classic",
    max_steps: int | None = None,
) -> "PolicyEpisode":
    """An episode of a scripted policy; it is played by iterating over it."""
    from assay.crafter.players.episode import PolicyEpisode
    from assay.crafter.players.policies import make_policy
    from assay.crafter.world import World

    player = make_policy(policy, seed)
    return PolicyEpisode(World(seed, difficulty), player, max_steps)


def serve(**settings: Any) -> "AbstractContextManager[RunningService]":
    """The world over HTTP in a thread, for as long as a `with` block takes.

    with assay.serve(port=0) as service: print(service.address)

    Args:
        **settings: By the names of `ServiceSettings`: host, port, max_instances and so on.
    """
    from assay.crafter.service.app import ServiceSettings, running

    return running(ServiceSettings(**settings))


def serve_models(**settings: Any) -> "AbstractContextManager[RunningModels]":
    """The built-in models over HTTP in a thread, for as long as a `with` block takes.

    with assay.serve_models(port=0) as server: print(server.base_url)

    Args:
        **settings: By the names of `ModelServerSettings`: host, port, aliases and so on.
    """
    from assay.agents.builtin import builtin_models
    from assay.models.serving.app import ModelServerSettings, running

    return running(ModelServerSettings(**settings), builtin_models())


def serve_finetune(**settings: Any) -> "AbstractContextManager[RunningFinetune]":
    """Fine-tune local models in a thread and let them answer, for as long as a block takes.

    with assay.serve_finetune(port=0) as service: print(service.base_url)

    Args:
        **settings: By the names of `FinetuneServerSettings`: host, port, folder and so on.
    """
    from assay.finetune.service.server import FinetuneServerSettings, running
    from assay.models.local_service import require_local

    require_local()
    return running(FinetuneServerSettings(**settings))
