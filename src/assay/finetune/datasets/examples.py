"""Examples from a recorded session: single calls, windows of turns, or the whole episode.

An example refers to messages by position, so nothing is copied or encoded here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from assay.finetune.datasets.options import Mode
from assay.store.conversations import ModelCall, PlayedTurn, Run, StoredConversation


@dataclass(slots=True)
class Example:
    """Content of one row, independent of the format."""

    prompt: list[Run]
    """Positions of the messages in the request of its first call, as runs."""
    rest: list[int]
    """Positions of all later messages: its answers, and the messages between them."""
    trained: set[int]
    """Positions of the answers to train."""
    first_turn: int
    last_turn: int
    reward: float
    """Reward of its turns."""
    tokens: int
    calls: int
    """Number of model answers it has after the prompt."""
    action: str
    """First action of its first turn; empty if there was none."""
    wasted: bool
    """Whether its last turn was wasted."""


def examples_of(
    session: StoredConversation, mode: Mode, turns: int, *, mask_waste: bool = False
) -> Iterator[Example]:
    """Yield the examples of a session; a window has `turns` turns, the last one maybe fewer."""
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
    """Make the example of one call; kept minimal, because most examples are single calls."""
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
