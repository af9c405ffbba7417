"""Episodes of scripted policies, and servers for worlds, built-in models and fine-tuning."""

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
    """Return an episode of a scripted policy; iterate over it to play."""
    from assay.crafter.players.episode import PolicyEpisode
    from assay.crafter.players.policies import make_policy
    from assay.crafter.world import World

    player = make_policy(policy, seed)
    return PolicyEpisode(World(seed, difficulty), player, max_steps)


def serve(**settings: Any) -> "AbstractContextManager[RunningService]":
    """Serve worlds over HTTP in a thread, within a `with` block.

    with assay.serve(port=0) as service: print(service.address)

    Args:
        **settings: Fields of `ServiceSettings`: host, port, max_instances and so on.
    """
    from assay.crafter.service.app import ServiceSettings, running

    return running(ServiceSettings(**settings))


def serve_models(**settings: Any) -> "AbstractContextManager[RunningModels]":
    """Serve the built-in models over HTTP in a thread, within a `with` block.

    with assay.serve_models(port=0) as server: print(server.base_url)

    Args:
        **settings: Fields of `ModelServerSettings`: host, port, aliases and so on.
    """
    from assay.agents.builtin import make_builtin_models
    from assay.models.serving.app import ModelServerSettings, running

    return running(ModelServerSettings(**settings), make_builtin_models())


def serve_finetune(**settings: Any) -> "AbstractContextManager[RunningFinetune]":
    """Serve fine-tuning and inference of local models in a thread, within a `with` block.

    with assay.serve_finetune(port=0) as service: print(service.base_url)

    Args:
        **settings: Fields of `FinetuneServerSettings`: host, port, folder and so on.
    """
    from assay.finetune.service.server import FinetuneServerSettings, running
    from assay.models.local_service import require_local

    require_local()
    return running(FinetuneServerSettings(**settings))
