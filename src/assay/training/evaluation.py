"""How well a policy does on held-out worlds: an episode in each, actions drawn by a fixed seed.

The worlds and the draws are the same for every run, so that runs are compared on equal terms.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.stats.score import crafter_score

from .networks.seam import Network
from .ppo import sample
from .token_environment import EndedEpisode, TokenEnvironment, WorldStart

__all__ = ["evaluate", "random_episodes", "summary"]

_SEED: Final = 2_718_281
"""Of the actions drawn in an evaluation."""

_Choose = Callable[[NDArray[np.uint8], NDArray[np.int64], torch.Generator], Tensor]


def evaluate(
    network: Network, environment: TokenEnvironment, starts: Sequence[WorldStart]
) -> list[EndedEpisode]:
    """Let a network play an episode in each world; in the order of the worlds."""
    memory = network.blank(len(environment))
    first = torch.ones(len(environment), dtype=torch.bool)

    def choose(
        tokens: NDArray[np.uint8], playing: NDArray[np.int64], generator: torch.Generator
    ) -> Tensor:
        seen = torch.from_numpy(tokens[playing]).unsqueeze(0)
        answer = network(seen, first[playing].unsqueeze(0), memory[playing])
        memory[playing] = answer.memory
        first[:] = False
        return sample(answer.logits[0], generator)[0]

    with torch.no_grad():
        return _play(environment, starts, choose)


def random_episodes(
    environment: TokenEnvironment, starts: Sequence[WorldStart]
) -> list[EndedEpisode]:
    """The same with actions drawn evenly: what a policy has to be better than."""
    actions = len(environment.space.actions)
    return _play(
        environment,
        starts,
        lambda tokens, playing, generator: torch.randint(
            actions, (len(playing),), generator=generator
        ),
    )


def _play(
    environment: TokenEnvironment, starts: Sequence[WorldStart], choose: _Choose
) -> list[EndedEpisode]:
    environment.begin(range(len(environment)), starts)
    generator = torch.Generator().manual_seed(_SEED)
    playing = np.arange(len(environment))
    actions = np.zeros(len(environment), np.int64)
    episodes: dict[int, EndedEpisode] = {}
    while len(playing):
        actions[playing] = choose(environment.observe(), playing, generator).numpy()
        environment.step(actions)
        ended = environment.ended()
        if ended:
            episodes |= {episode.world: episode for episode in ended}
            playing = np.array([i for i in playing.tolist() if i not in episodes], np.int64)
    return [episodes[world] for world in range(len(environment))]


def summary(episodes: Sequence[EndedEpisode]) -> dict[str, float]:
    """The means of some episodes, and the score of their goals."""
    rates = np.array([episode.reached for episode in episodes]).mean(0)
    return {
        "reward": float(np.mean([episode.reward for episode in episodes])),
        "episode_length": float(np.mean([episode.length for episode in episodes])),
        "achievements": float(rates.sum()),
        "score": float(crafter_score(rates)),
    }
