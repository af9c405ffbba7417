"""What was learned, as files: a JSON text and safetensors, never a pickle.

    model.json               the base model, its words, the head, how it was trained
    weights.safetensors      what was trained
    checkpoint.safetensors   while it is trained: weights, moments, and where it stands

Each file is there whole or not at all.
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
from assay.core.tensors import packed, unpacked
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
    """The key of the head that it learned, where it leaves the head out."""
    about: Mapping[str, Any]
    """How it was trained."""

    def write(self, folder: Path, weights: Weights) -> None:
        """Keep it; the text comes last, so that a folder that has one is whole."""
        atomic_write(folder / "weights.safetensors", packed(weights))
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
        """The text of a folder.

        Raises:
            UsageError: There is no model in it.
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
        """The model with its weights.

        Raises:
            UsageError: The weights are missing, damaged, or of another shape.
        """
        path = folder / "weights.safetensors"
        model = base_named(self.base).model(self.words, torch.Generator().manual_seed(0))
        wanted = {n: w for n, w in model.named_parameters() if w.requires_grad}
        weights, _ = unpacked(path)
        if {n: w.shape for n, w in weights.items()} != {n: w.shape for n, w in wanted.items()}:
            raise UsageError(
                f"{path} has weights of another shape than {self.base} has now; it was made by "
                "an earlier assay, or damaged: train it again with 'assay finetune start'"
            )
        model.load_state_dict(weights, strict=False)
        return model


class TrainingState:
    """Where a training stands."""

    def __init__(self, tensors: Weights, state: Mapping[str, Any]) -> None:
        self._tensors, self._state = tensors, state

    @property
    def identity(self) -> str:
        """Which training it is of."""
        return str(self._state["identity"])

    @property
    def validated(self) -> Sequence[Sequence[Any]]:
        """The validations so far."""
        return list(self._state["validated"])

    @classmethod
    def read(cls, folder: Path) -> "TrainingState | None":
        """The one of a folder, if there is one.

        Raises:
            UsageError: It is damaged.
        """
        path = folder / _CHECKPOINT
        if not path.exists():
            return None
        tensors, told = unpacked(path)
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
        """Keep where a training stands, in place of the checkpoint before."""
        state = {"identity": identity, "step": step, "validated": validated}
        tensors = dict(weights)
        for name, weight in weights.items():
            for optimizer in optimizers:
                for moment, value in optimizer.state.get(weight, {}).items():
                    tensors[f"{name}/{moment}"] = value
        content = packed(tensors, {"state": canonical_json(state).decode()})
        atomic_write(folder / _CHECKPOINT, content)

    def restore(self, weights: Weights, optimizers: Sequence[torch.optim.Optimizer]) -> int:
        """Put all back; returns how many steps were made."""
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
    """Remove what a finished training no longer needs."""
    with suppress(FileNotFoundError):
        (folder / _CHECKPOINT).unlink()
