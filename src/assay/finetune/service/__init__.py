"""The local service: OpenAI's files and fine_tuning.jobs, and chats with what was trained.

    with running(FinetuneServerSettings(port=0)) as service:
        OpenAI(base_url=service.base_url, api_key="none").fine_tuning.jobs.list()

Needs the extra `local`; names are loaded when first used.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .server import (
        DEFAULT_PORT,
        FinetuneServerSettings,
        RunningFinetune,
        run,
        running,
    )

__all__ = [
    "DEFAULT_PORT",
    "FinetuneServerSettings",
    "RunningFinetune",
    "run",
    "running",
]

__getattr__, __dir__ = _lazy_names(__name__)
