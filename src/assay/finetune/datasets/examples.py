"""From a recorded session to the examples it gives: a call, a window of turns, the episode.

An example is positions of messages, so that nothing is copied or encoded here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from assay.finetune.datasets.options import Mode
from assay.store.conversations import ModelCall, PlayedTurn, Run, StoredConversation


@dataclass(slots=True)
class Example:
    """One row before it has a format."""

    prompt: list[Run]
    """The positions of the messages that the first of its calls was sent, as runs."""
    rest: list[int]
    """The positions of all that follows: its answers, and what stands between them."""
    trained: set[int]
    """The positions of the answers to learn from."""
    first_turn: int
    last_turn: int
    reward: float
    """What its turns earned."""
    tokens: int
    calls: int
    """How many answers of the model it holds beside its prompt."""
    action: str
    """The first action that its first turn asked for; empty if there was none."""
    wasted: bool
    """Whether its last turn came to nothing."""


def examples_of(
    session: StoredConversation, mode: Mode, turns: int, *, mask_waste: bool = False
) -> Iterator[Example]:
    """The examples of a session; a window has `turns` turns, the last one perhaps fewer."""
    calls = session.calls
    if mode is Mode.CALL:
        yield from (_of_call(session, call) for call in calls)
        return
    numbers = list(dict.fromkeys(call.turn for call in calls))
    width = len(numbers) if mode is Mode.EPISODE else turns
    place = {number: index // max(1, width) for index, number in enumerate(numbers)}
    groups: list[list[ModelCall]] = [[] for _ in range(len(set(place.values())))]
    for call in calls:
        groups[place[call.turn]].append(call)
    for group in groups:
        yield _example(session, group, mask_waste)


def _of_call(session: StoredConversation, call: ModelCall) -> Example:
    """The example of one call; nearly all are such, so it does no more than it must."""
    turn = session.turns.get(call.turn) or PlayedTurn()
    return Example(
        call.runs,
        [call.reply],
        {call.reply},
        call.turn,
        call.turn,
        turn.reward,
        call.tokens,
        1,
        turn.action,
        turn.wasted,
    )


def _example(session: StoredConversation, calls: list[ModelCall], mask_waste: bool) -> Example:
    first, last = calls[0], calls[-1]
    rest: list[int] = []
    seen = set(first.request)
    for call in calls:
        for position in (*call.request, call.reply):
            if position not in seen:
                seen.add(position)
                rest.append(position)
    turns = [session.turns.get(turn) for turn in dict.fromkeys(call.turn for call in calls)]
    trained = {call.reply for call in calls}
    if mask_waste:
        wasted = {number for number, turn in session.turns.items() if turn.wasted}
        trained = {call.reply for call in calls if call.turn not in wasted}
    return Example(
        prompt=first.runs,
        rest=rest,
        trained=trained,
        first_turn=first.turn,
        last_turn=last.turn,
        reward=sum(turn.reward for turn in turns if turn is not None),
        tokens=sum(call.tokens for call in calls),
        calls=len(calls),
        action="" if turns[0] is None else turns[0].action,
        wasted=turns[-1] is not None and turns[-1].wasted,
    )
