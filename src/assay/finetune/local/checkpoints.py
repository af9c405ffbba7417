"""Files of a model: JSON and safetensors, never pickles.

    model.json               base model, vocabulary, head, and training details
    weights.safetensors      trained weights
    checkpoint.safetensors   during training: weights, optimizer moments, and progress

Files are written atomically.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import torch
from torch import Tensor

from assay.core.canonical_json import canonical_json
from assay.core.files import atomic_write
from assay.core.tensors import load_tensors, pack_tensors
from assay.errors import UsageError
from assay.finetune.local.bases import base_named
from assay.finetune.local.decoder import Decoder

_FORMAT: Final = "assay-model/1"
_CHECKPOINT: Final = "checkpoint.safetensors"
Weights = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model in a folder."""

    base: str
    words: tuple[str, ...]
    head: str | None
    """Key of the head it was trained with, if its template leaves the head out."""
    about: Mapping[str, Any]
    """Training details."""

    def write(self, folder: Path, weights: Weights) -> None:
        """Write the model; the JSON is written last, so that a folder with it is complete."""
        atomic_write(folder / "weights.safetensors", pack_tensors(weights))
        told = {
            "format": _FORMAT,
            "base": self.base,
            "words": self.words,
            "head": self.head,
            **self.about,
        }
        atomic_write(folder / "model.json", canonical_json(told))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the JSON of a model folder.

        Raises:
            UsageError: The folder has no valid model.
        """
        path = folder / "model.json"
        try:
            told = json.loads(path.read_bytes())
            if told.pop("format") != _FORMAT:
                raise ValueError("it has another format")
            return cls(told.pop("base"), tuple(told.pop("words")), told.pop("head"), told)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is no model of assay: {error}") from error

    def model(self, folder: Path) -> Decoder:
        """Load the model with its weights.

        Raises:
            UsageError: The weights are missing, damaged, or have another shape.
        """
        path = folder / "weights.safetensors"
        model = base_named(self.base).model(self.words, torch.Generator().manual_seed(0))
        wanted = {n: w for n, w in model.named_parameters() if w.requires_grad}
        weights, _ = load_tensors(path)
        if {n: w.shape for n, w in weights.items()} != {n: w.shape for n, w in wanted.items()}:
            raise UsageError(
                f"{path} has weights of another shape than {self.base} has now; it was made by "
                "an earlier assay, or damaged: train it again with 'assay finetune start'"
            )
        model.load_state_dict(weights, strict=False)
        return model


class TrainingState:
    """Progress of a training run, as stored in a checkpoint."""

    def __init__(self, tensors: Weights, state: Mapping[str, Any]) -> None:
        self._tensors, self._state = tensors, state

    @property
    def identity(self) -> str:
        """Hash that identifies the training run."""
        return str(self._state["identity"])

    @property
    def validated(self) -> Sequence[Sequence[Any]]:
        """Validation results so far."""
        return list(self._state["validated"])

    @classmethod
    def read(cls, folder: Path) -> "TrainingState | None":
        """Read the checkpoint of a folder, if any.

        Raises:
            UsageError: The checkpoint is damaged.
        """
        path = folder / _CHECKPOINT
        if not path.exists():
            return None
        tensors, told = load_tensors(path)
        return cls(tensors, json.loads(told["state"]))

    @staticmethod
    def write(
        folder: Path,
        identity: str,
        step: int,
        validated: Sequence[tuple[int, float, float]],
        weights: Weights,
        optimizers: Sequence[torch.optim.Optimizer],
    ) -> None:
        """Write a checkpoint that replaces the previous one."""
        state = {"identity": identity, "step": step, "validated": validated}
        tensors = dict(weights)
        for name, weight in weights.items():
            for optimizer in optimizers:
                for moment, value in optimizer.state.get(weight, {}).items():
                    tensors[f"{name}/{moment}"] = value
        content = pack_tensors(tensors, {"state": canonical_json(state).decode()})
        atomic_write(folder / _CHECKPOINT, content)

    def restore(self, weights: Weights, optimizers: Sequence[torch.optim.Optimizer]) -> int:
        """Restore weights and optimizers; return the number of completed steps."""
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(self._tensors[name])
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for weight in group["params"]:
                    name = next(name for name, one in weights.items() if one is weight)
                    optimizer.state[weight] = {
                        key.removeprefix(f"{name}/"): value
                        for key, value in self._tensors.items()
                        if key.startswith(f"{name}/")
                    }
        return int(self._state["step"])


def remove_checkpoint(folder: Path) -> None:
    """Delete the checkpoint of a finished training run."""
    with suppress(FileNotFoundError):
        (folder / _CHECKPOINT).unlink()
