"""Proximal policy optimisation (Schulman et al., 2017), following CleanRL's scripts.

Clipped objective, advantages normalised in each minibatch, generalised advantage estimation,
gradients clipped by norm. A minibatch is the whole rollout of some worlds, so that networks
with memory learn through all its steps. The value loss is not clipped. An episode that ends by
its step limit counts as terminated: its last state is not bootstrapped.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from assay.training.config import TrainingConfig
from assay.training.networks import Network

_LAST_RATE: Final = 0.1
"""Final learning rate relative to the initial one."""


class Diverged(Exception):
    """A loss or a gradient is not finite; the message is its name."""


@dataclass(frozen=True, slots=True)
class Experience:
    """T steps of N worlds, with the outputs of the network."""

    tokens: Tensor
    """(T, N, tokens, 3)"""
    starts: Tensor
    """(T, N), whether an episode starts with this step."""
    memory: Tensor
    """(N, S), before the first step."""
    actions: Tensor
    """(T, N)"""
    log_chances: Tensor
    """(T, N), log probabilities of the actions when they were chosen."""
    values: Tensor
    """(T, N), estimated values of the states."""
    rewards: Tensor
    """(T, N), after the actions."""
    last_value: Tensor
    """(N,), estimated values of the states after the last step."""
    last_starts: Tensor
    """(N,), whether an episode ended with the last step."""


def sample(logits: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sample an action for each row of (N, actions); return actions and log probabilities."""
    noise = torch.rand(logits.shape, generator=generator).clamp_min_(1e-20)
    actions = (logits - torch.log(-torch.log(noise))).argmax(1)
    chances = torch.log_softmax(logits, 1)
    return actions, chances.gather(1, actions.unsqueeze(1)).squeeze(1)


def advantages(rollout: Experience, gamma: float, gae_lambda: float) -> Tensor:
    """Compute generalised advantage estimates (Schulman et al., 2016), (T, N)."""
    steps = len(rollout.rewards)
    found = torch.empty_like(rollout.rewards)
    ahead = torch.zeros_like(rollout.last_value)
    for step in reversed(range(steps)):
        last = step == steps - 1
        ended = rollout.last_starts if last else rollout.starts[step + 1]
        value = rollout.last_value if last else rollout.values[step + 1]
        goes_on = 1.0 - ended.to(value.dtype)
        surprise = rollout.rewards[step] + gamma * value * goes_on - rollout.values[step]
        ahead = surprise + gamma * gae_lambda * goes_on * ahead
        found[step] = ahead
    return found


def update(
    network: Network,
    optimizer: torch.optim.Optimizer,
    rollout: Experience,
    config: TrainingConfig,
    done: float,
    generator: torch.Generator,
) -> Mapping[str, float]:
    """Learn from a rollout; return the losses, averaged over the minibatches.

    `done` is the completed share of the run; the generator draws the minibatches.

    Raises:
        Diverged: A loss is not finite; the weights are from before that minibatch.
    """
    found = advantages(rollout, config.gamma, config.gae_lambda)
    returns = found + rollout.values
    for group in optimizer.param_groups:
        left = 1 - (1 - _LAST_RATE) * done if config.anneal else 1.0
        group["lr"] = config.learning_rate * left
    sums: dict[str, float] = {}
    worlds = rollout.starts.shape[1]
    for _ in range(config.epochs):
        order = torch.randperm(worlds, generator=generator)
        for part in order.chunk(config.minibatches):
            told = _learn(network, optimizer, rollout, found, returns, part, config)
            sums = {name: sums.get(name, 0.0) + value for name, value in told.items()}
    count = config.epochs * config.minibatches
    spread = returns.var(unbiased=False)
    unexplained = (returns - rollout.values).var(unbiased=False) / spread.clamp_min(1e-12)
    return {f"losses/{name}": value / count for name, value in sums.items()} | {
        "losses/explained_variance": 1 - unexplained.item()
    }


def _learn(
    network: Network,
    optimizer: torch.optim.Optimizer,
    rollout: Experience,
    found: Tensor,
    returns: Tensor,
    part: Tensor,
    config: TrainingConfig,
) -> dict[str, float]:
    """Do one optimiser step on some worlds, and return the losses."""
    answer = network(rollout.tokens[:, part], rollout.starts[:, part], rollout.memory[part])
    log_chances = torch.log_softmax(answer.logits, 2)
    entropy = -(log_chances.exp() * log_chances).sum(2).mean()
    chosen = log_chances.gather(2, rollout.actions[:, part].unsqueeze(2)).squeeze(2)
    log_ratio = chosen - rollout.log_chances[:, part]
    ratio = log_ratio.exp()
    gain = found[:, part]
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    policy_loss = -torch.min(ratio * gain, clipped * gain).mean()
    value_loss = 0.5 * (answer.values - returns[:, part]).square().mean()
    loss = policy_loss + config.value_coefficient * value_loss - config.entropy * entropy
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), config.max_grad_norm)
    with torch.no_grad():
        told = {
            "policy": policy_loss.item(),
            "value": value_loss.item(),
            "entropy": entropy.item(),
            "gradient_norm": norm.item(),
            "approx_kl": (ratio - 1 - log_ratio).mean().item(),
            "clip_fraction": ((ratio - 1).abs() > config.clip).float().mean().item(),
        }
    for name, value in told.items():
        if not math.isfinite(value):
            raise Diverged(f"losses/{name}")
    optimizer.step()
    return told
