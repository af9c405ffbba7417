"""Checkpoints, from which a run resumes as if it had never stopped, and agents made from them.

    step-40960/policy.safetensors     the weights, with the configuration in the metadata
    step-40960/optimiser.safetensors  the moments of the optimiser, and the network memory
    step-40960/state.json             random generators, curriculum, worlds, last episodes

No file is a pickle. A folder gets its name only when it is complete. The last two are kept.

`checkpoint_agent` makes a trained policy an agent for episodes: it receives views, and samples
its actions with a seed.
"""

import base64
import json
import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from assay.agents.user_agents import UserAgent, find_checkpoint
from assay.core.canonical_json import canonical_json, content_hash
from assay.core.tensors import load_tensors, pack_tensors
from assay.crafter.view import View
from assay.errors import OutputError, UsageError
from assay.training.architectures import architecture_named
from assay.training.config import TrainingConfig, parse_stored_config
from assay.training.crafter_worlds import tokenize_view
from assay.training.networks import Network
from assay.training.ppo import sample_actions

_FORMAT: Final = "assay-policy/1"
_MAX_CHECKPOINTS: Final = 2
_MEMORY: Final = "memory"


def encode_generator(generator: torch.Generator) -> str:
    """Return the state of a generator as text."""
    return base64.b64encode(generator.get_state().numpy().tobytes()).decode()


def restore_generator(generator: torch.Generator, text: str) -> None:
    """Restore the state of a generator from text."""
    raw = bytearray(base64.b64decode(text))
    generator.set_state(torch.frombuffer(raw, dtype=torch.uint8).clone())


def find_latest(folder: Path) -> Path | None:
    """Return the newest checkpoint of a run, if any."""
    checkpoints = [path for path in (folder / "checkpoints").glob("step-*") if path.is_dir()]
    return max(checkpoints, key=lambda path: int(path.name.removeprefix("step-")), default=None)


def write_checkpoint(
    folder: Path,
    step: int,
    config: TrainingConfig,
    network: Network,
    optimizer: torch.optim.Optimizer,
    memory: Tensor,
    state: Mapping[str, Any],
) -> Path:
    """Write a checkpoint of a run and return its folder.

    Raises:
        OutputError: It cannot be written.
    """
    checkpoints = folder / "checkpoints"
    target = checkpoints / f"step-{step}"
    temporary = checkpoints / f".step-{step}"
    weights = dict(network.named_parameters())
    moments = {
        f"{name}/{moment}": value
        for name, weight in weights.items()
        for moment, value in optimizer.state.get(weight, {}).items()
    }
    # One entry, because the order of several would vary between writes.
    metadata = {_FORMAT: canonical_json({"config": config.stored(), "step": step}).decode()}
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        _write_synced(temporary / "policy.safetensors", pack_tensors(weights, metadata))
        _write_synced(
            temporary / "optimiser.safetensors", pack_tensors({**moments, _MEMORY: memory})
        )
        _write_synced(temporary / "state.json", canonical_json({"step": step, **state}))
        shutil.rmtree(target, ignore_errors=True)
        temporary.replace(target)
        written = sorted(
            checkpoints.glob("step-*"), key=lambda p: int(p.name.removeprefix("step-"))
        )
        for path in written[:-_MAX_CHECKPOINTS]:
            shutil.rmtree(path, ignore_errors=True)
    except OSError as error:
        raise OutputError(
            f"cannot write the checkpoint {str(target)!r}: {error.strerror or error}; free "
            "some space, then resume with the same command"
        ) from error
    return target


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_checkpoint(
    path: Path, network: Network, optimizer: torch.optim.Optimizer
) -> tuple[Tensor, dict[str, Any]]:
    """Restore weights and moments; return the memory of the network and all other state.

    Raises:
        UsageError: The checkpoint is damaged, or belongs to another network.
    """
    try:
        state = json.loads((path / "state.json").read_bytes())
        weights, _ = load_tensors(path / "policy.safetensors")
        moments, _ = load_tensors(path / "optimiser.safetensors")
        _load_weights(network, weights, path)
        for name, weight in network.named_parameters():
            prefix = f"{name}/"
            optimizer.state[weight] = {
                key.removeprefix(prefix): value
                for key, value in moments.items()
                if key.startswith(prefix)
            }
        return moments[_MEMORY], state
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"the checkpoint {str(path)!r} is damaged ({error}); remove that folder to resume "
            "from the one before it"
        ) from error


def load_policy(path: Path) -> tuple[Network, TrainingConfig]:
    """Load a network and its configuration from a run folder, a checkpoint folder or weights.

    Raises:
        UsageError: There is no checkpoint, or another program wrote it.
    """
    file = find_checkpoint(path)
    weights, metadata = load_tensors(file)
    if _FORMAT not in metadata:
        raise UsageError(
            f"{str(file)!r} was not written by 'assay train'; give a checkpoint that was"
        )
    config = parse_stored_config(json.loads(metadata[_FORMAT])["config"], str(file))
    architecture = architecture_named(config.architecture)
    generator = torch.Generator().manual_seed(0)
    network = architecture.network(config.space, config.resolved_width, generator)
    _load_weights(network, weights, file)
    return network, config


def _load_weights(network: Network, weights: Mapping[str, Tensor], path: Path) -> None:
    parameters = dict(network.named_parameters())
    if {n: w.shape for n, w in weights.items()} != {n: w.shape for n, w in parameters.items()}:
        raise UsageError(
            f"the weights in {str(path)!r} do not fit the current architecture; another "
            "version of assay wrote them: train again"
        )
    with torch.no_grad():
        for name, weight in parameters.items():
            weight.copy_(weights[name])


class CheckpointAgent:
    """A trained policy in one episode; its memory covers only that episode."""

    def __init__(self, network: Network, seed: int) -> None:
        self._network = network
        self._memory = network.make_blank_memory(1)
        self._generator = torch.Generator().manual_seed(seed)
        self._first = True

    def act(self, view: View) -> int:
        """Return the index of the next action."""
        tokens = torch.from_numpy(tokenize_view(view)).view(1, 1, -1, 3)
        with torch.no_grad():
            output = self._network(tokens, torch.tensor([[self._first]]), self._memory)
            self._memory, self._first = output.memory, False
            action, _ = sample_actions(output.logits[0], self._generator)
        return int(action.item())


def checkpoint_agent(path: Path) -> UserAgent:
    """Return an agent that plays with a checkpoint; its name has the run and the step.

    Raises:
        UsageError: There is no checkpoint, another program wrote it, or it is not for Crafter.
    """
    file = find_checkpoint(path)
    # One observation at a time: more threads would only wait for each other.
    torch.set_num_threads(1)
    network, config = load_policy(file)
    if config.environment != "crafter":
        raise UsageError(
            f"{str(path)!r} was trained in {config.environment}, but 'assay run' plays "
            "Crafter; its results on held-out worlds are in evaluation.json of its run"
        )
    parts = file.resolve().parts
    name = f"{parts[-4]} {parts[-2]}" if parts[-3:-2] == ("checkpoints",) else parts[-2]
    make_agent = partial(CheckpointAgent, network)
    return UserAgent(name, content_hash(file.read_bytes()), make_agent, frozenset({"seed"}))
