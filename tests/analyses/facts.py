"""Episodes made by hand, for the tests of analyses."""

from collections.abc import Sequence
from typing import Any

from assay.analyses.episodes import EpisodeFacts
from assay.store.load import HookFiring, LostTurn, SessionCalls, SessionSteps

from ..report.rows import episode

__all__ = ["facts"]


def facts(
    model: str = "a",
    seed: int = 0,
    *,
    replicate: int = 0,
    actions: Sequence[str] = (),
    no_effect: Sequence[str | None] = (),
    hooks: Sequence[HookFiring] = (),
    calls: SessionCalls | None = None,
    cut: int = 0,
    unreadable: int = 0,
    **but: Any,
) -> EpisodeFacts:
    """Return an episode of a model in a world, with defaults for all other facts."""
    values: dict[str, Any] = {
        "session_id": f"{model}-{seed}-{replicate}",
        "model": model,
        "seed": seed,
        "replicate": replicate,
        "task": "crafter/easy",
        "steps": len(actions) or 100,
    }
    row = episode(**values | but)
    return EpisodeFacts(
        row=row,
        group=row.model,
        steps=SessionSteps(tuple(actions), tuple(no_effect) or (None,) * len(actions)),
        hooks=tuple(hooks),
        calls=calls,
        lost_turns=tuple(
            LostTurn(turn + 1, 0, malformed=turn >= cut, cut=turn < cut)
            for turn in range(max(cut, unreadable))
        ),
    )
