"""How rows are made of the episodes that were chosen: what was asked for, checked.

From a recorded session to the examples it gives: a call, a window of turns, the episode.

An example is positions of messages, so that nothing is copied or encoded here.

Worlds that are held out of training: whole seeds, and never single rows.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any

from assay.errors import UsageError
from assay.finetune.datasets.formats import RowFormat
from assay.store.conversations import ModelCall, PlayedTurn, Run, StoredConversation


class Mode(StrEnum):
    """What one row is."""

    CALL = "call"
    """One call: what the model was sent, and its answer."""
    WINDOW = "window"
    """Some turns that follow one another."""
    EPISODE = "episode"
    """All turns of an episode."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlan:
    """How rows are made of the episodes that were chosen."""

    form: RowFormat = RowFormat.OPENAI
    mode: Mode = Mode.CALL
    turns: int = 8
    """Turns of a window."""
    drop_waste: bool = False
    mask_waste: bool = False
    balance_actions: bool = False
    dedupe: bool = False
    drop_notes: bool = False
    relabel: bool = False
    """Whether the expert's answers take the place of those that were given."""
    train_history: bool = False
    prompt_completion: bool = False

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        weighted = self.form is RowFormat.OPENAI
        if self.drop_waste and self.mode is not Mode.CALL:
            raise UsageError(
                f"--drop-waste would tear a hole into a row of --mode {self.mode}; use "
                "--mask-waste there, or --mode call"
            )
        if self.mask_waste and (self.mode is Mode.CALL or not weighted):
            raise UsageError(
                "--mask-waste gives a wasted answer among others the weight 0, so it needs "
                "--mode window or episode, and --format openai; use --drop-waste with "
                "--mode call"
            )
        if self.balance_actions and self.mode is not Mode.CALL:
            raise UsageError(
                f"--balance-actions counts calls, and --mode {self.mode} has several in a row; "
                "use --mode call"
            )
        if self.train_history and not weighted:
            raise UsageError(
                f"--train-history is about weights, which --format {self.form} has none of; "
                "use --format openai"
            )
        if self.prompt_completion and self.form is not RowFormat.TRL:
            raise UsageError(
                f"--prompt-completion is a shape of --format trl, not of {self.form}"
            )
        if self.relabel and (self.mode is not Mode.CALL or self.has_states):
            raise UsageError(
                "--relabel gives each call another answer, so it needs --mode call, and a "
                "--format with one answer in a row, such as openai"
            )
        if self.form is RowFormat.PROMPTS and self.mode is not Mode.CALL:
            raise UsageError(
                f"--format prompts has a row per call; leave out --mode {self.mode}"
            )
        if self.turns < 1:
            raise UsageError(f"--turns {self.turns} is not allowed; give 1 or more")

    @property
    def is_preference(self) -> bool:
        """Whether a row is a pair of answers."""
        return self.form in (RowFormat.PREFERENCE, RowFormat.PREFERENCE_TRL)

    @property
    def has_states(self) -> bool:
        """Whether worlds are played again for it."""
        return self.is_preference or self.form is RowFormat.PROMPTS

    def columns(self, output: Path) -> Sequence[str] | None:
        """The columns of a Parquet file; None for JSON Lines.

        Raises:
            UsageError: The format has no such columns.
        """
        if output.suffix != ".parquet":
            return None
        if self.form is not RowFormat.TRL:
            raise UsageError(
                f"{str(output)!r} would be Parquet, which --format trl alone can be; "
                "name a file that ends in .jsonl"
            )
        return ("prompt", "completion") if self.prompt_completion else ("messages",)

    def given(self) -> dict[str, Any]:
        """The plan as JSON has it."""
        return {name: value for name, value in asdict(self).items() if value is not False}


_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST = 1_000_000


def read_seeds(text: str, option: str) -> tuple[int, ...]:
    """The seeds of a list such as `42,43,50-59`.

    Raises:
        UsageError: It is none.
    """
    seeds: dict[int, None] = {}
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        found = _RANGE.fullmatch(part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < first + _MOST:
            raise UsageError(
                f"{option} {text!r}: {part!r} is no seed; give seeds such as 42,43,50-59"
            )
        seeds.update(dict.fromkeys(range(first, last + 1)))
    if not seeds:
        raise UsageError(f"{option} {text!r} has no seed; give seeds such as 42,43,50-59")
    return tuple(seeds)


def read_share(text: str, option: str) -> float:
    """The share that a text such as `20%` or `0.2` stands for.

    Raises:
        UsageError: It is none above 0 and up to 1.
    """
    try:
        percent = text.strip().endswith("%")
        share = float(text.strip().removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"{option} {text!r} is no share; give one such as 20% or 0.2")
    return share


@dataclass(frozen=True, slots=True)
class Holdout:
    """Which seeds are held out: these, or a share of those there are."""

    seeds: tuple[int, ...] = ()
    share: float | None = None

    @classmethod
    def read(cls, text: str) -> "Holdout":
        """What a list of seeds, or a share such as `20%`, stands for."""
        if "%" in text:
            return cls(share=read_share(text, "--holdout-seeds"))
        return cls(read_seeds(text, "--holdout-seeds"))

    def among(self, seeds: Collection[int]) -> frozenset[int]:
        """The seeds among these that are held out.

        A share takes the seeds with the smallest hashes, so that the same ones are taken
        every time and have nothing to do with how they were played.
        """
        if self.share is None:
            return frozenset(self.seeds) & frozenset(seeds)
        ranked = sorted(
            set(seeds), key=lambda seed: blake2b(str(seed).encode(), digest_size=8).digest()
        )
        return frozenset(ranked[: max(1, round(self.share * len(ranked)))] if ranked else ())
