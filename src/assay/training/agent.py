"""A trained policy as an agent of episodes: it sees views, and draws its actions by a seed."""

from functools import partial
from pathlib import Path

import torch

from assay._util.canonical import content_hash
from assay.agents.own import OwnAgent, checkpoint_file
from assay.crafter.view import View
from assay.errors import UsageError

from .checkpoints import TrainedPolicy, load_policy
from .crafter_worlds import view_tokens
from .ppo import sample

__all__ = ["CheckpointAgent", "checkpoint_agent"]


class CheckpointAgent:
    """One episode: it remembers what it saw in it, and nothing else."""

    def __init__(self, policy: TrainedPolicy, seed: int) -> None:
        self._network = policy.network
        self._memory = policy.network.blank(1)
        self._generator = torch.Generator().manual_seed(seed)
        self._first = True

    def act(self, view: View) -> int:
        """The index of an action."""
        seen = torch.from_numpy(view_tokens(view)).view(1, 1, -1, 3)
        with torch.no_grad():
            said = self._network(seen, torch.tensor([[self._first]]), self._memory)
            self._memory, self._first = said.memory, False
            action, _ = sample(said.logits[0], self._generator)
        return int(action.item())


def checkpoint_agent(path: Path) -> OwnAgent:
    """The agent of a checkpoint, named by its run and step.

    Raises:
        UsageError: There is none, or it is not one of ours.
    """
    file = checkpoint_file(path)
    # It answers one observation at a time: more threads would only wait for each other.
    torch.set_num_threads(1)
    policy = load_policy(file)
    if policy.config.environment != "crafter":
        raise UsageError(
            f"{str(path)!r} was trained in {policy.config.environment}, and 'assay run' plays "
            "Crafter; its held-out worlds are in evaluation.json of its run"
        )
    parts = file.resolve().parts
    name = f"{parts[-4]} {parts[-2]}" if parts[-3:-2] == ("checkpoints",) else parts[-2]
    value = partial(CheckpointAgent, policy)
    return OwnAgent(name, content_hash(file.read_bytes()), value, frozenset({"seed"}))
