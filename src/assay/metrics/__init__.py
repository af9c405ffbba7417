"""Numbers over traces: hooks, tallies and outcomes, replay and verification.

What plays worlds is loaded when first used, so that a hook does not load a compiler.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names
from assay.traces.records import HookRecord

from .builtin_hooks import DEFAULT_HOOKS
from .hook_files import HookSet, gather_hooks, installed_hooks, load_hooks
from .hooks import BaseHook, Hook, StepSeen, hook
from .tally import OUTCOMES, Tally
from .tiers import TIERS, Tier
from .watch import Watch

if TYPE_CHECKING:
    from .replay import Replay, Replayed, replay_session
    from .verify import Difference, Finding, Verification, verify_session

__all__ = [
    "DEFAULT_HOOKS",
    "OUTCOMES",
    "TIERS",
    "BaseHook",
    "Difference",
    "Finding",
    "Hook",
    "HookRecord",
    "HookSet",
    "Replay",
    "Replayed",
    "StepSeen",
    "Tally",
    "Tier",
    "Verification",
    "Watch",
    "gather_hooks",
    "hook",
    "installed_hooks",
    "load_hooks",
    "replay_session",
    "verify_session",
]

__getattr__ = _lazy_names(
    __name__,
    {
        "replay": ("Replay", "Replayed", "replay_session"),
        "verify": ("Difference", "Finding", "Verification", "verify_session"),
    },
)


def __dir__() -> list[str]:
    return __all__
