"""Public import path for user-defined hooks and metrics.

The definitions are in `assay.episodes`.
"""

from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.episodes.hook_runner import HookSet as HookSet
    from assay.episodes.hook_runner import Watch as Watch
    from assay.episodes.hook_runner import gather_hooks as gather_hooks
    from assay.episodes.hook_runner import installed_hooks as installed_hooks
    from assay.episodes.hook_runner import load_hooks as load_hooks
    from assay.episodes.hooks import DEFAULT_HOOKS as DEFAULT_HOOKS
    from assay.episodes.hooks import TIERS as TIERS
    from assay.episodes.hooks import BaseHook as BaseHook
    from assay.episodes.hooks import Hook as Hook
    from assay.episodes.hooks import StepSeen as StepSeen
    from assay.episodes.hooks import Tier as Tier
    from assay.episodes.hooks import hook as hook
    from assay.episodes.metrics import SHIPPED as SHIPPED
    from assay.episodes.metrics import Metric as Metric
    from assay.episodes.metrics import MetricInput as MetricInput
    from assay.episodes.metrics import MetricSet as MetricSet
    from assay.episodes.metrics import Problem as Problem
    from assay.episodes.metrics import achievement_rate as achievement_rate
    from assay.episodes.metrics import efficiency_score as efficiency_score
    from assay.episodes.metrics import load_metrics as load_metrics
    from assay.episodes.metrics import metric as metric
    from assay.episodes.metrics import rule_understanding as rule_understanding
    from assay.episodes.metrics import time_efficiency as time_efficiency
    from assay.episodes.metrics import time_management as time_management
    from assay.episodes.recorded_episode import Episode as Episode
    from assay.episodes.recorded_episode import EpisodeStep as EpisodeStep
    from assay.episodes.recorded_episode import EpisodeTurn as EpisodeTurn
    from assay.episodes.replay import Difference as Difference
    from assay.episodes.replay import Finding as Finding
    from assay.episodes.replay import Replay as Replay
    from assay.episodes.replay import Replayed as Replayed
    from assay.episodes.replay import Verification as Verification
    from assay.episodes.replay import replay_session as replay_session
    from assay.episodes.replay import verify_session as verify_session
    from assay.episodes.stored_metrics import Applied as Applied
    from assay.episodes.stored_metrics import apply_metrics as apply_metrics
    from assay.episodes.stored_metrics import ensure_metrics as ensure_metrics
    from assay.episodes.totals import EpisodeTotals as EpisodeTotals
    from assay.judge.outcomes import OUTCOMES as OUTCOMES
    from assay.store.records import HookRecord as HookRecord

__getattr__, __dir__ = _lazy_names(__name__)
