"""Numbers over traces: hooks, metrics, tallies and outcomes, replay and verification.

What plays worlds or opens stores is loaded when first used, so that a hook loads no compiler
and a metric no database.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names
from assay.judge.outcomes import OUTCOMES
from assay.traces.records import HookRecord

from .builtin_hooks import DEFAULT_HOOKS
from .custom import Metric, MetricInput, metric
from .evidence import Episode, EpisodeStep, EpisodeTurn
from .hook_files import HookSet, gather_hooks, installed_hooks, load_hooks
from .hooks import BaseHook, Hook, StepSeen, hook
from .measuring import Problem
from .metric_files import MetricSet, load_metrics
from .shipped import (
    SHIPPED,
    achievement_rate,
    efficiency_score,
    rule_understanding,
    time_efficiency,
    time_management,
)
from .tally import EpisodeTotals
from .tiers import TIERS, Tier
from .watch import Watch

if TYPE_CHECKING:
    from .applying import Applied, apply_metrics, ensure_metrics
    from .replay import Replay, Replayed, replay_session
    from .verify import Difference, Finding, Verification, verify_session

__all__ = [
    "DEFAULT_HOOKS",
    "OUTCOMES",
    "SHIPPED",
    "TIERS",
    "Applied",
    "BaseHook",
    "Difference",
    "Episode",
    "EpisodeStep",
    "EpisodeTotals",
    "EpisodeTurn",
    "Finding",
    "Hook",
    "HookRecord",
    "HookSet",
    "Metric",
    "MetricInput",
    "MetricSet",
    "Problem",
    "Replay",
    "Replayed",
    "StepSeen",
    "Tier",
    "Verification",
    "Watch",
    "achievement_rate",
    "apply_metrics",
    "efficiency_score",
    "ensure_metrics",
    "gather_hooks",
    "hook",
    "installed_hooks",
    "load_hooks",
    "load_metrics",
    "metric",
    "replay_session",
    "rule_understanding",
    "time_efficiency",
    "time_management",
    "verify_session",
]

__getattr__, __dir__ = _lazy_names(__name__)
