"""Conversion of sessions to rows, with counts of the rows that are left out.

A session is divided into examples: single calls, windows of turns, or the whole episode. An
example refers to messages by position, so nothing is copied or encoded for it.

Notes can be removed from answers, in requests and replies alike. A scripted teacher keeps data
in its notes, such as its memory in base64, that a student cannot learn to write. Without notes,
a row contains what the student will see.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

import numpy as np

from assay.core.canonical_json import canonical_json
from assay.finetune.datasets.filters import FunnelStep, Tally
from assay.finetune.datasets.formats import RowFormat, RowWriter
from assay.finetune.datasets.manifest import RowFile, RowPieces
from assay.finetune.datasets.options import RowMode, RowOptions
from assay.finetune.datasets.preferences import (
    SharedStates,
    compute_call_states,
    compute_expert_answers,
    compute_returns,
    format_pair,
)
from assay.store.conversations import ModelCall, PlayedTurn, Run, StoredConversation
from assay.store.records import SessionRecord

_UNTRAINED: Final = b',"weight":0}'


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


def make_examples(
    session: StoredConversation, mode: RowMode, turns: int, *, mask_waste: bool = False
) -> Iterator[Example]:
    """Yield the examples of a session; a window has `turns` turns, the last one maybe fewer."""
    calls = session.calls
    if mode is RowMode.CALL:
        yield from (_make_call_example(session, call) for call in calls)
        return
    numbers = list(dict.fromkeys(call.turn for call in calls))
    width = len(numbers) if mode is RowMode.EPISODE else turns
    group_index = {number: index // max(1, width) for index, number in enumerate(numbers)}
    groups: list[list[ModelCall]] = [[] for _ in range(len(set(group_index.values())))]
    for call in calls:
        groups[group_index[call.turn]].append(call)
    for group in groups:
        yield _make_window_example(session, group, mask_waste)


def _make_call_example(session: StoredConversation, call: ModelCall) -> Example:
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


def _make_window_example(
    session: StoredConversation, calls: list[ModelCall], mask_waste: bool
) -> Example:
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


class RowMaker:
    """Converts sessions to rows and counts those that are left out."""

    def __init__(self, plan: RowOptions) -> None:
        self.plan = plan
        self.writer = RowWriter(plan.form, plan.train_history, plan.prompt_completion)
        self.limits: Mapping[str, int] | None = None
        self.left = Tally()
        self.actions: Counter[str] = Counter()
        self._seen = _SeenRows()
        self._copied = FunnelStep("not copied from a forked episode")
        self._incomplete = FunnelStep("messages are stored")
        self._waste = FunnelStep("--drop-waste")
        self._untrained = FunnelStep("something to train")
        self._balance = FunnelStep("--balance-actions")
        self._stateless = FunnelStep("can be played again")
        self._dedupe = FunnelStep("--dedupe")
        self._unseen = FunnelStep("--relabel")
        self._alone = FunnelStep("another answer in the same state")
        self._unclear = FunnelStep("the order is clear")
        self.starts: Mapping[str, Mapping[int, bytes]] = {}

    @property
    def steps(self) -> list[FunnelStep]:
        """Filters of rows, in order; one not requested is listed only if it removed rows."""
        plan = self.plan
        steps = (
            (self._copied, False),
            (self._incomplete, False),
            (self._waste, plan.drop_waste),
            (self._untrained, plan.mask_waste),
            (self._balance, plan.balance_actions),
            (self._stateless, plan.has_states),
            (self._alone, plan.is_preference),
            (self._unclear, plan.is_preference),
            (self._dedupe, plan.dedupe),
            (self._unseen, plan.relabel),
        )
        return [step for step, requested in steps if requested or step.removed.turns]

    def write_rows(self, session: StoredConversation, split: str, sink: RowFile) -> list[str]:
        """Write the rows of a session; return their origins as JSON text."""
        plan = self.plan
        answers = compute_expert_answers(session) if plan.relabel else {}
        text = _SessionText(
            session, self.writer, {reply: answer.body for reply, answer in answers.items()}
        )
        lines: list[RowPieces] = []
        origins: list[str] = []
        written: list[Example] = []
        last_step: FunnelStep | None = (
            self._copied if self._drop_copied_calls(session) else None
        )
        name = json.dumps(session.session_id)
        for example in make_examples(
            session, plan.mode, plan.turns, mask_waste=plan.mask_waste
        ):
            if plan.relabel:
                [reply] = example.trained
                example.action = answers[reply].action if reply in answers else ""
            step, line = self._make_row_or_step(session, example, text)
            if step is not None:
                step.removed.add(example.calls, example.tokens, episodes=0)
                last_step = step
                continue
            lines.append(line)
            written.append(example)
            origins.append(
                f"[{name},{example.first_turn},{example.last_turn},"
                f'{round(example.reward, 6)!r},"{split}"]'
            )
        sink.write(lines)
        if written:
            self.left.add(
                sum(example.calls for example in written),
                sum(example.tokens for example in written),
            )
            self.actions.update(example.action for example in written)
        elif last_step is not None:
            last_step.removed.episodes += 1
        return origins

    def _drop_copied_calls(
        self, session: StoredConversation, *, keep_last: bool = False
    ) -> bool:
        """Drop the calls that a fork copied from its parent; return whether there were any.

        With `but_last`, the last copied call is kept: the turns after it are the fork's own, so
        they are one more future of that answer. Earlier calls do not count, because all forks
        share the answers after them.
        """
        copied = [call.turn for call in session.calls if call.copied]
        if not copied:
            return False
        first = copied[-1] + (not keep_last)
        kept = [call for call in session.calls if call.turn >= first]
        dropped = session.calls[: len(session.calls) - len(kept)]
        tokens = sum(call.tokens for call in dropped)
        self._copied.removed.add(len(dropped), tokens, episodes=0)
        session.calls = kept
        return True

    def write_pairs(
        self,
        sessions: Sequence[StoredConversation],
        records: Sequence[SessionRecord],
        split: str,
        sink: RowFile,
    ) -> list[str]:
        """Write the preference pairs of one world; return their origins as JSON text."""
        states = SharedStates()
        replayed: set[str] = set()
        for session, record in zip(sessions, records, strict=True):
            self._drop_copied_calls(session, keep_last=True)
            if states.add(session, record):
                replayed.add(session.session_id)
            else:
                tokens = sum(call.tokens for call in session.calls)
                self._stateless.removed.add(len(session.calls), tokens)
        lines: list[RowPieces] = []
        origins, used = [], set[str]()
        trl = self.plan.form is RowFormat.PREFERENCE_TRL
        for pair in states.make_pairs(self._alone, self._unclear):
            lines.append([format_pair(pair, trl=trl).encode(), b"\n"])
            origins.append(
                f"[{json.dumps(pair.session_id)},{pair.turn},{pair.turn},"
                f'{pair.margin!r},"{split}",{json.dumps(pair.other_session_id)}]'
            )
            self.left.add(pair.calls, pair.tokens, episodes=0)
            used |= pair.sessions
        self.left.episodes += len(used)
        self._alone.removed.episodes += len(replayed - used)
        sink.write(lines)
        return origins

    def _make_row_or_step(
        self, session: StoredConversation, example: Example, text: "_SessionText"
    ) -> tuple[FunnelStep | None, RowPieces]:
        """Return the row of an example, or the step that removes it."""
        plan = self.plan
        if not text.is_complete(example):
            return self._incomplete, []
        if plan.drop_waste and example.wasted:
            return self._waste, []
        if not example.trained:
            return self._untrained, []
        if plan.relabel and not example.action:
            return self._unseen, []
        if self.limits is not None:
            number = hash_turn(session.session_id, example.first_turn)
            if number > self.limits.get(example.action, 0):
                return self._balance, []
        if plan.form is RowFormat.PROMPTS:
            state_fields = self.starts.get(session.session_id, {}).get(example.first_turn)
            if state_fields is None:
                return self._stateless, []
            line = text.make_prompt_row(example, state_fields)
        else:
            line = text.make_row(example)
        if plan.dedupe and not self._seen.add(line):
            return self._dedupe, []
        return None, line


class _SessionText:
    """Messages of a session in the format of the rows, each converted once.

    A row is mostly a slice of one long text: consecutive messages of a request, each preceded
    by a comma.
    """

    def __init__(
        self, session: StoredConversation, writer: RowWriter, replacements: Mapping[int, str]
    ) -> None:
        self._session = session
        self._writer = writer
        self._replacements = replacements
        """Answers to train instead of the actual ones, by position."""
        self._answers: dict[int, bytes] | list[bytes] = {}
        if writer.form is RowFormat.OPENAI and not writer.train_history:
            # Fast path for the most common options: no call per message.
            raw = [body.encode() for body in session.bodies]
            self._answers = [*raw]
            for position, body in replacements.items():
                self._answers[position] = body.encode()
            self._context = [
                body[:-1] + _UNTRAINED if role == "assistant" else body
                for body, role in zip(raw, session.roles, strict=True)
            ]
        else:
            self._context = [
                self._format_message(place) for place in range(len(session.bodies))
            ]
        self._text = memoryview(b"," + b",".join(self._context))
        self._offsets = [0, *accumulate(len(message) + 1 for message in self._context)]
        self._first: dict[int, bytes] = {}
        self._head, self._between = writer.head, writer.between
        self._tail = writer.format_tail(session.tools)
        self._all_stored = all(session.bodies)

    def is_complete(self, example: Example) -> bool:
        """Return whether all messages of an example are stored."""
        bodies, size = self._session.bodies, len(self._session.bodies)
        if max(example.rest) >= size or any(end > size for _, end in example.prompt):
            return False
        return self._all_stored or (
            all(bodies[position] for position in example.rest)
            and all(all(bodies[first:end]) for first, end in example.prompt)
        )

    def make_row(self, example: Example) -> RowPieces:
        """Return the row of an example."""
        pieces = self._make_prompt(example)
        context, trained = self._context, example.trained
        pieces.append(self._between if example.prompt else self._between.lstrip(b","))
        pieces.append(
            b",".join(
                [
                    self._format_answer(position) if position in trained else context[position]
                    for position in example.rest
                ]
            )
        )
        pieces.append(self._tail)
        return pieces

    def make_prompt_row(self, example: Example, state_fields: bytes) -> RowPieces:
        """Return a row without an answer, with the fields about its state."""
        return [
            *self._make_prompt(example),
            self._tail.removesuffix(b"}\n"),
            b",",
            state_fields,
            b"}\n",
        ]

    def _make_prompt(self, example: Example) -> RowPieces:
        """Return a row up to the last message of its prompt."""
        if not example.prompt:
            return [self._head]
        text, at = self._text, self._offsets
        (first, end), *others = example.prompt
        pieces: RowPieces = [self._make_first_message(first), text[at[first + 1] : at[end]]]
        pieces += [text[at[first] : at[end]] for first, end in others]
        return pieces

    def _make_first_message(self, position: int) -> bytes:
        """Return the start of a row with its first message."""
        text = self._first.get(position)
        if text is None:
            message = self._format_message(position, tools=self._session.tools)
            text = self._first[position] = self._head + message
        return text

    def _format_answer(self, position: int) -> bytes:
        if isinstance(self._answers, list):
            return self._answers[position]
        text = self._answers.get(position)
        if text is None:
            text = self._answers[position] = self._format_message(position, trained=True)
        return text

    def _format_message(
        self, position: int, *, trained: bool = False, tools: str | None = None
    ) -> bytes:
        body, role = self._session.bodies[position], self._session.roles[position]
        if trained:
            body = self._replacements.get(position, body)
        if not body:
            return b""
        return self._writer.format_message(body, role, trained=trained, tools=tools).encode()


def make_state_fields(session: SessionRecord) -> dict[int, bytes]:
    """Return the state fields of a `prompts` row by turn, as the inside of a JSON object."""
    returns, header = compute_returns(session), session.header
    fields = {}
    for turn, state in compute_call_states(session).items():
        values = {
            "difficulty": header.metadata.get("difficulty", header.difficulty),
            "digest": state.digest,
            "reward": returns[turn],
            "seed": header.seed,
            "snapshot": state.snapshot,
            "step": state.step,
            "task": header.task,
        }
        fields[turn] = canonical_json(values)[1:-1]
    return fields


class _SeenRows:
    """Rows seen so far, as 64-bit hashes of 8 bytes each."""

    def __init__(self) -> None:
        self._old = np.empty(0, np.uint64)
        self._new: set[int] = set()

    def add(self, line: RowPieces) -> bool:
        """Add a row; return whether it is new."""
        key = int.from_bytes(hashlib.blake2b(b"".join(line), digest_size=8).digest(), "big")
        if key in self._new:
            return False
        index = int(np.searchsorted(self._old, np.uint64(key)))
        if index < len(self._old) and int(self._old[index]) == key:
            return False
        self._new.add(key)
        if len(self._new) >= 50_000:
            fresh = np.fromiter(self._new, np.uint64, len(self._new))
            self._old = np.sort(np.concatenate((self._old, fresh)))
            self._new.clear()
        return True


def hash_turn(session_id: str, turn: int) -> int:
    """Return a reproducible pseudo-random number that does not depend on the content."""
    digest = hashlib.blake2b(f"{session_id} {turn}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


_NOTES_KEY = "notes"


def remove_notes(session: StoredConversation) -> StoredConversation:
    """Return the session with the notes removed from its answers."""
    bodies = [
        _remove_notes_from_body(body) if role == "assistant" and _NOTES_KEY in body else body
        for body, role in zip(session.bodies, session.roles, strict=True)
    ]
    return replace(session, bodies=bodies)


def _remove_notes_from_body(body: str) -> str:
    message = json.loads(body)
    for call in message.get("tool_calls") or ():
        call["function"]["arguments"] = _remove_notes_from_json(
            call["function"].get("arguments")
        )
    message["content"] = _remove_notes_from_json(message.get("content"))
    return canonical_json(message).decode()


def _remove_notes_from_json(text: Any) -> Any:
    """Remove the notes from a JSON object; return any other text unchanged."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return text
    if not isinstance(value, dict) or _NOTES_KEY not in value:
        return text
    del value[_NOTES_KEY]
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
