"""How weights are changed: AdamW, and steps in all directions alike for the inner matrices.

For a model that is made from scratch, the step of a matrix inside of a block is its mean
gradient with all singular values made equal (Muon: Jordan, 2024). In the same time of a
processor that came to a lower loss than AdamW.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["Muon", "optimizers_of"]

_DECAY: Final = 0.1
_MOMENTUM: Final = 0.95
_QUINTIC: Final = (3.4445, -4.7750, 2.0315)
"""Of a polynomial that brings singular values near to 1 when it is applied some times."""
_ROUNDS: Final = 5


class Muon(torch.optim.Optimizer):
    """For matrices; the state has the names of Adam's."""

    def __init__(self, matrices: list[Tensor], weight_decay: float) -> None:
        super().__init__(matrices, {"lr": 0.0, "weight_decay": weight_decay})

    def step(self, closure: Any = None) -> None:
        """Change each matrix by its rate."""
        with torch.no_grad():
            for group in self.param_groups:
                for matrix in group["params"]:
                    self._change(matrix, group["lr"], group["weight_decay"])

    def _change(self, matrix: Tensor, rate: float, decay: float) -> None:
        assert matrix.grad is not None
        state = self.state[matrix]
        if not state:
            state["exp_avg"] = torch.zeros_like(matrix)
        mean = state["exp_avg"].lerp_(matrix.grad, 1 - _MOMENTUM)
        change = _levelled(matrix.grad.lerp(mean, _MOMENTUM))
        tall = max(1.0, matrix.shape[0] / matrix.shape[1])
        matrix.mul_(1 - rate * decay).add_(change, alpha=-rate * tall**0.5)


def _levelled(matrix: Tensor) -> Tensor:
    """A matrix with the same directions, all about equally long."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    a, b, c = _QUINTIC
    for _ in range(_ROUNDS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if tall else x


def optimizers_of(
    weights: Mapping[str, Tensor], muon: float
) -> list[tuple[torch.optim.Optimizer, float]]:
    """The optimizers of a model, each with what the learning rate is multiplied by for it.

    Args:
        weights: Those that are trained, by name.
        muon: What it is multiplied by for the matrices inside of blocks; 0 for AdamW alone.
    """
    inner = [w for n, w in weights.items() if muon and n.startswith("blocks") and w.dim() > 1]
    others = [w for w in weights.values() if not any(w is one for one in inner)]
    groups: list[dict[str, Any]] = [
        {"params": [w for w in others if w.dim() > 1], "weight_decay": _DECAY},
        {"params": [w for w in others if w.dim() == 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW([group for group in groups if group["params"]], betas=(0.9, 0.95))
    return [(Muon(inner, _DECAY), muon), (adam, 1.0)] if inner else [(adam, 1.0)]
