"""Searches for hyperparameters, and runs what wins on fresh seeds before it is believed.

    from assay.sweeps import TrialCommand, SweepPlan, read_space, search

The search itself is Optuna's, of the extra `train`. Names are loaded when first used.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .plan import DEFAULT_COMMAND, Pruner, Sampler, SweepPlan
    from .searching import SweepResult, SweepTrial, search
    from .space import SweepSpace, read_space
    from .trainers import Trained, TrialCommand, TrialTrainer

__all__ = [
    "DEFAULT_COMMAND",
    "Pruner",
    "Sampler",
    "SweepPlan",
    "SweepResult",
    "SweepSpace",
    "SweepTrial",
    "Trained",
    "TrialCommand",
    "TrialTrainer",
    "read_space",
    "search",
]

__getattr__, __dir__ = _lazy_names(__name__)
