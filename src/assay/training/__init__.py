"""Training of policies: PPO on worlds that are stepped together, with runs that resume exactly.

    from pathlib import Path
    from assay.training import TrainingConfig, train

    train(TrainingConfig(architecture="mlp", total_steps=100_000), Path("run"))

To train takes the extra `train` (torch and safetensors); to configure, to plan and to read a
run's folder does not. Names are loaded when first used.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .config import TrainingConfig
    from .environments import space_of
    from .folder import TrainingFolder, TrainState, training_run
    from .training import TrainingEnd, TrainingProgress, train

__all__ = [
    "TrainState",
    "TrainingConfig",
    "TrainingEnd",
    "TrainingFolder",
    "TrainingProgress",
    "space_of",
    "train",
    "training_run",
]

__getattr__, __dir__ = _lazy_names(__name__)
