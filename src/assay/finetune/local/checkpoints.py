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
from assay.finetune.local.bases import find_base
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
        content = {
            "format": _FORMAT,
            "base": self.base,
            "words": self.words,
            "head": self.head,
            **self.about,
        }
        atomic_write(folder / "model.json", canonical_json(content))

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the JSON of a model folder.

        Raises:
            UsageError: The folder has no valid model.
        """
        path = folder / "model.json"
        try:
            content = json.loads(path.read_bytes())
            if content.pop("format") != _FORMAT:
                raise ValueError("its format is unknown")
            return cls(
                content.pop("base"), tuple(content.pop("words")), content.pop("head"), content
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is not a model of assay: {error}") from error

    def load_model(self, folder: Path) -> Decoder:
        """Load the model with its weights.

        Raises:
            UsageError: The weights are missing, damaged, or have another shape.
        """
        path = folder / "weights.safetensors"
        model = find_base(self.base).make_model(self.words, torch.Generator().manual_seed(0))
        trained = {n: w for n, w in model.named_parameters() if w.requires_grad}
        weights, _ = load_tensors(path)
        if {n: w.shape for n, w in weights.items()} != {n: w.shape for n, w in trained.items()}:
            raise UsageError(
                f"the weights in {path} do not fit {self.base}; they were written by an "
                "earlier version "
                "of assay, or are damaged: train again with 'assay finetune start'"
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
        tensors, metadata = load_tensors(path)
        return cls(tensors, json.loads(metadata["state"]))

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
                    name = next(
                        name for name, candidate in weights.items() if candidate is weight
                    )
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
