"""Chat models over HTTP, in the wire protocol of OpenAI, with faults on request.

    from assay.serving import Faults, ModelServerSettings, running

    settings = ModelServerSettings(faults=Faults(latency=0.1, error_rate=0.2))
    with running(settings, {"mine": model}) as server:
        ...  # any client of the protocol, with server.base_url

`assay.serve_models` serves the built-in models. Names are loaded when first used.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .faults import Faults, ServedFault
    from .limits import ServingLimits
    from .model_table import ModelTable
    from .server import ModelServerSettings, RunningModels, run, running

__all__ = [
    "Faults",
    "ModelServerSettings",
    "ModelTable",
    "RunningModels",
    "ServedFault",
    "ServingLimits",
    "run",
    "running",
]

__getattr__, __dir__ = _lazy_names(__name__)
