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

_FINAL_RATE_SHARE: Final = 0.1
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
    log_probs: Tensor
    """(T, N), log probabilities of the actions when they were chosen."""
    values: Tensor
    """(T, N), estimated values of the states."""
    rewards: Tensor
    """(T, N), after the actions."""
    last_value: Tensor
    """(N,), estimated values of the states after the last step."""
    last_starts: Tensor
    """(N,), whether an episode ended with the last step."""


def sample_actions(logits: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sample an action for each row of (N, actions); return actions and log probabilities."""
    noise = torch.rand(logits.shape, generator=generator).clamp_min_(1e-20)
    actions = (logits - torch.log(-torch.log(noise))).argmax(1)
    log_probs = torch.log_softmax(logits, 1)
    return actions, log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)


def compute_advantages(rollout: Experience, gamma: float, gae_lambda: float) -> Tensor:
    """Compute generalised advantage estimates (Schulman et al., 2016), (T, N)."""
    steps = len(rollout.rewards)
    advantages = torch.empty_like(rollout.rewards)
    advantage = torch.zeros_like(rollout.last_value)
    for step in reversed(range(steps)):
        last = step == steps - 1
        is_end = rollout.last_starts if last else rollout.starts[step + 1]
        value = rollout.last_value if last else rollout.values[step + 1]
        continues = 1.0 - is_end.to(value.dtype)
        delta = rollout.rewards[step] + gamma * value * continues - rollout.values[step]
        advantage = delta + gamma * gae_lambda * continues * advantage
        advantages[step] = advantage
    return advantages


def update(
    network: Network,
    optimizer: torch.optim.Optimizer,
    rollout: Experience,
    config: TrainingConfig,
    completed_share: float,
    generator: torch.Generator,
) -> Mapping[str, float]:
    """Learn from a rollout; return the losses, averaged over the minibatches.

    `completed_share` is how much of the run is done; the generator draws the minibatches.

    Raises:
        Diverged: A loss is not finite; the weights are from before that minibatch.
    """
    advantages = compute_advantages(rollout, config.gamma, config.gae_lambda)
    returns = advantages + rollout.values
    for group in optimizer.param_groups:
        rate_share = 1 - (1 - _FINAL_RATE_SHARE) * completed_share if config.anneal else 1.0
        group["lr"] = config.learning_rate * rate_share
    sums: dict[str, float] = {}
    worlds = rollout.starts.shape[1]
    for _ in range(config.epochs):
        order = torch.randperm(worlds, generator=generator)
        for worlds_part in order.chunk(config.minibatches):
            losses = _step_minibatch(
                network, optimizer, rollout, advantages, returns, worlds_part, config
            )
            sums = {name: sums.get(name, 0.0) + value for name, value in losses.items()}
    count = config.epochs * config.minibatches
    variance = returns.var(unbiased=False)
    unexplained = (returns - rollout.values).var(unbiased=False) / variance.clamp_min(1e-12)
    return {f"losses/{name}": value / count for name, value in sums.items()} | {
        "losses/explained_variance": 1 - unexplained.item()
    }


def _step_minibatch(
    network: Network,
    optimizer: torch.optim.Optimizer,
    rollout: Experience,
    advantages: Tensor,
    returns: Tensor,
    worlds: Tensor,
    config: TrainingConfig,
) -> dict[str, float]:
    """Do one optimiser step on some worlds, and return the losses."""
    output = network(
        rollout.tokens[:, worlds], rollout.starts[:, worlds], rollout.memory[worlds]
    )
    log_probs = torch.log_softmax(output.logits, 2)
    entropy = -(log_probs.exp() * log_probs).sum(2).mean()
    action_log_probs = log_probs.gather(2, rollout.actions[:, worlds].unsqueeze(2)).squeeze(2)
    log_ratio = action_log_probs - rollout.log_probs[:, worlds]
    ratio = log_ratio.exp()
    advantage = advantages[:, worlds]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
    value_loss = 0.5 * (output.values - returns[:, worlds]).square().mean()
    loss = policy_loss + config.value_coefficient * value_loss - config.entropy * entropy
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), config.max_grad_norm)
    with torch.no_grad():
        losses = {
            "policy": policy_loss.item(),
            "value": value_loss.item(),
            "entropy": entropy.item(),
            "gradient_norm": norm.item(),
            "approx_kl": (ratio - 1 - log_ratio).mean().item(),
            "clip_fraction": ((ratio - 1).abs() > config.clip).float().mean().item(),
        }
    for name, value in losses.items():
        if not math.isfinite(value):
            raise Diverged(f"losses/{name}")
    optimizer.step()
    return losses
