"""Tensors in the safetensors format, which cannot contain code."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from assay.errors import UsageError


def pack_tensors(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> bytes:
    """Return tensors and metadata as the content of a file."""
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    return bytes(save(contiguous, metadata=None if metadata is None else dict(metadata)))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    """Return the tensors and the metadata of a file.

    Raises:
        UsageError: The file is not in this format.
    """
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as weights: {error}") from error
