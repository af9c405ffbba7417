"""Episodes for the tests of reports."""

from typing import Any

from assay.crafter.rules import ACHIEVEMENTS
from assay.store.queries import EpisodeRow
from assay.types import TrialState

__all__ = ["episode", "failed"]


def episode(
    model: str = "a/model", number: int = 0, unlocked: int = 3, **but: Any
) -> EpisodeRow:
    """Return a completed episode with these changes."""
    values: dict[str, Any] = {
        "session_id": f"{model}-{number}",
        "experiment_id": f"id of {model}",
        "experiment_name": f"{model} v1.0",
        "run_id": "run",
        "model": model,
        "seed": 42 + number,
        "episode": number,
        "difficulty": "easy",
        "state": TrialState.RESULT,
        "stop_reason": "max_turns",
        "reward": float(unlocked),
        "steps": 100,
        "turns": 50,
        "duration_s": 12.5,
        "actions_asked": 100,
        "unknown_actions": 1,
        "no_effect_actions": 4,
        "asleep_actions": 2,
        "malformed_replies": 1,
        "achievements": {name: 10 * at for at, name in enumerate(ACHIEVEMENTS[:unlocked], 1)},
        "prompt_tokens": 1000,
        "completion_tokens": 200,
        "cost_usd": 0.01,
        "error_type": None,
        "error_message": None,
        "baseline": False,
    }
    return EpisodeRow(**values | but)


def failed(model: str = "a/model", number: int = 0, **but: Any) -> EpisodeRow:
    """An episode that ended as a failure of the model."""
    error = {"error_type": "ModelRefused", "error_message": "will not", "stop_reason": "error"}
    return episode(model, number, **{"state": TrialState.FAILURE, **error, **but})
