"""What the expert would have answered in the states that another player came to.

A student that only saw its teacher play does not know what to do after a mistake that the
teacher never makes. Rows of the student's own episodes, with the teacher's answers, show it
(DAgger: Ross, Gordon, Bagnell, 2011).
"""

import json
from typing import Any, NamedTuple

from assay._util.canonical import canonical_json
from assay.agents import observation_in
from assay.crafter import ACTIONS
from assay.crafter.text import as_view
from assay.errors import UsageError
from assay.players.expert import ExpertPolicy
from assay.traces.conversations import StoredConversation

__all__ = ["ExpertAnswer", "expert_answers"]

_NOOP = ACTIONS.index("noop")


class ExpertAnswer(NamedTuple):
    """What the expert would have answered."""

    action: str
    body: str
    """The message as JSON text."""


def expert_answers(session: StoredConversation) -> dict[int, ExpertAnswer]:
    """The expert's answer to each call, by the position of the reply that was given.

    The expert follows what was really played, and answers as its rows do without notes.
    Calls without an observation that can be read are left out.

    Raises:
        UsageError: The model could ask for several actions in a turn.
    """
    if '"maxItems":1,' not in (session.tools or ""):
        raise UsageError(
            "--relabel needs episodes of one action in a turn, or it could not follow them; "
            "play them with --actions-per-turn 1"
        )
    policy = ExpertPolicy(0)
    answers = {}
    for call in session.calls:
        told: Any = json.loads(session.bodies[call.request[-1]]).get("content")
        observation = observation_in(told) if isinstance(told, str) else None
        if observation is None:
            continue
        action = ACTIONS[policy.act(as_view(observation))]
        arguments = {"actions": [action], "reasoning": f"My goal is to {policy.goal}."}
        function = {"arguments": canonical_json(arguments).decode(), "name": "interact"}
        made = {"function": function, "id": f"call_{call.reply}", "type": "function"}
        message = {"content": None, "role": "assistant", "tool_calls": [made]}
        answers[call.reply] = ExpertAnswer(action, canonical_json(message).decode())
        turn = session.turns.get(call.turn)
        played = turn.action if turn is not None else ""
        policy.took(ACTIONS.index(played) if played in ACTIONS else _NOOP)
    return answers
