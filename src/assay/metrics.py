"""Hooks and metrics of one's own, by the path that users' files name.

The definitions are in `assay.episodes`.
"""

from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.episodes.hook_runner import (
        HookSet,
        Watch,
        gather_hooks,
        installed_hooks,
        load_hooks,
    )
    from assay.episodes.hooks import DEFAULT_HOOKS, TIERS, BaseHook, Hook, StepSeen, Tier, hook
    from assay.episodes.metrics import (
        SHIPPED,
        Metric,
        MetricInput,
        MetricSet,
        Problem,
        achievement_rate,
        efficiency_score,
        load_metrics,
        metric,
        rule_understanding,
        time_efficiency,
        time_management,
    )
    from assay.episodes.recorded_episode import Episode, EpisodeStep, EpisodeTurn
    from assay.episodes.replay import (
        Difference,
        Finding,
        Replay,
        Replayed,
        Verification,
        replay_session,
        verify_session,
    )
    from assay.episodes.stored_metrics import Applied, apply_metrics, ensure_metrics
    from assay.episodes.totals import EpisodeTotals
    from assay.judge.outcomes import OUTCOMES
    from assay.store.records import HookRecord

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
