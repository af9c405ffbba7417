"""The local learner: language models that are trained, and answer, on this machine.

    from assay.finetune.local import Settings, load, train

    trained = train("local/tiny", rows, Settings(), seed=0, folder=Path("model"))
    [reply] = load(trained.folder).replies([request])

Needs the extra `local` (torch and safetensors); names are loaded when first used.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .bases import BASES, base_named, smollm2_file
    from .generating import Generator, ModelReply, ModelRequest, load, load_base
    from .malformed import MalformedCalls, malformed_calls
    from .training import Settings, StepDone, TokenCounts, TrainedModel, Validated, train

__all__ = [
    "BASES",
    "Generator",
    "MalformedCalls",
    "ModelReply",
    "ModelRequest",
    "Settings",
    "StepDone",
    "TokenCounts",
    "TrainedModel",
    "Validated",
    "base_named",
    "load",
    "load_base",
    "malformed_calls",
    "smollm2_file",
    "train",
]

__getattr__, __dir__ = _lazy_names(__name__)
