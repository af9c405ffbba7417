"""`builtin/expert`: the scripted expert behind the chat protocol.

What it remembers travels in the notes of its replies: the state of the policy, in base 64.
Notes that are missing, cut off, altered or of another place make it start afresh. The seed
of the request decides which of equally good directions it takes.
"""

import base64
import re
from typing import Final

from assay.crafter import View
from assay.crafter.rules import ACHIEVEMENTS, ACTIONS
from assay.crafter.text import as_view
from assay.players.expert import ExpertPolicy
from assay.players.expert.turns import catch_up, plan
from assay.types import ChatRequest

from ..feedback import MARKER, results_in
from .request import Choice, last_observation, max_actions, notes

__all__ = ["decide"]

_TITLE: Final = "memory:"
_MAX_NOTES: Final = 10_000
"""Those of a whole world stay below."""
_ACHIEVED: Final = re.compile(
    r"^Achieved so far(?: \(\d+ of \d+\): (.+)|: none of \d+)\.$", re.M
)


def decide(request: ChatRequest) -> Choice:
    """What the expert answers; a noop where there is nothing to see."""
    observation = last_observation(request)
    if observation is None:
        return Choice(("noop",))
    view = as_view(observation)
    policy = _remember(request, view)
    turn = plan(policy, view, max_actions(request))
    return Choice(
        actions=tuple(ACTIONS[action] for action in turn.actions),
        reasoning=f"My goal is to {turn.goal}.",
        notes=f"{_TITLE}{base64.b64encode(turn.state).decode()}",
    )


def _remember(request: ChatRequest, view: View) -> ExpertPolicy:
    """The expert as it was when it wrote its last reply, and what came of that."""
    seed = abs(request.seed or 0)
    told = request.messages[-1].text
    state = _state(notes(request))
    if state is None:
        policy = ExpertPolicy(seed)
    else:
        results = results_in(told)
        actions = [ACTIONS.index(result.action) for result in results]
        failed = {i for i, result in enumerate(results) if not result.worked}
        policy = catch_up(seed, state, actions, view, failed=failed)
    policy.memory.told = _achieved(told)
    return policy


def _state(text: str) -> bytes | None:
    if not text.startswith(_TITLE) or len(text) > _MAX_NOTES:
        return None
    try:
        return base64.b64decode(text.removeprefix(_TITLE), validate=True)
    except ValueError:
        return None


def _achieved(told: str) -> frozenset[str] | None:
    """What a report says has been achieved so far; None if it says nothing."""
    found = _ACHIEVED.search(told.rpartition(f"{MARKER}\n")[0])
    if found is None:
        return None
    return frozenset((found[1] or "").split(", ")).intersection(ACHIEVEMENTS)
