"""A recorded episode as metrics receive it: typed, read-only, and independent of storage.

An `Episode` is made from a `SessionRecord`. Messages are the largest part of a session, so they
are read only when a metric accesses them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from assay.episodes.totals import EpisodeTotals
from assay.errors import UsageError
from assay.store.records import CallRecord, MessageRecord, PlayedRecord, SessionRecord
from assay.types import TrialState, Usage


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """One environment step."""

    index: int
    """Counted from 1 over the whole episode."""
    turn: int
    """Turn that requested it, counted from 1."""
    action: str
    reward: float
    unlocked: tuple[str, ...]
    """Achievements unlocked for the first time."""
    no_effect: str | None
    """Reason why the action changed nothing, such as `asleep`; None if it had an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeTurn:
    """One turn: the model calls, the requested actions and the steps."""

    number: int
    """Counted from 1."""
    asked: tuple[str, ...]
    """Requested actions, including unknown ones."""
    unknown: tuple[str, ...]
    """Requested actions that do not exist."""
    malformed: str | None
    """Parsing problem of the reply, if it was malformed."""
    skipped: int
    """Number of known actions that were not executed, because the episode had ended."""
    steps: tuple[EpisodeStep, ...]
    usage: Usage
    """Tokens over all calls: prompt, completion, cached, reasoning, total."""
    cost_usd: float | None
    """None if the price of a call is unknown."""
    latency_s: float
    calls: int
    """Number of model calls: 1 for most agents, 0 if the agent decided without a model."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episode:
    """One episode that has ended."""

    id: str
    """Session id."""
    experiment_id: str
    run_id: str
    model: str
    """Label of the entry that played."""
    task: str
    """Task name; `crafter/<difficulty>` for Crafter."""
    difficulty: str | None
    seed: int | None
    number: int
    """Number within the experiment, counted from 0."""
    replicate: int
    """0 unless a world is played again."""
    state: TrialState
    """End state; metrics receive only completed episodes."""
    stop_reason: str
    """A `StopReason`, or `terminate: ` followed by the reason of the model."""
    duration_s: float
    """Seconds of play, without waiting for other trials."""
    source: str = "assay"
    """Format it was imported from, or assay."""
    turns: tuple[EpisodeTurn, ...] = field(repr=False)
    steps: tuple[EpisodeStep, ...] = field(repr=False)
    achievements: Mapping[str, int] = field(repr=False)
    """Step index of each unlocked achievement, in order."""
    outcomes: Mapping[str, float] = field(repr=False)
    """Outcomes that are already stored for it."""
    tally: EpisodeTotals = field(repr=False)
    """Totals: requested actions, the four kinds of waste, and values computed from them."""
    read_messages: Callable[[], Sequence[MessageRecord]] = field(repr=False)
    """Reads the messages; called by `messages`."""

    @classmethod
    def of(
        cls,
        session: SessionRecord,
        *,
        source: str = "assay",
        read_messages: Callable[[], Sequence[MessageRecord]] | None = None,
    ) -> "Episode":
        """Make an episode from a session; without `read_messages`, it keeps its messages.

        Raises:
            UsageError: The session has not ended.
        """
        header, end, tally = session.header, session.end, EpisodeTotals.of(session)
        if end is None:
            raise UsageError(
                f"episode {header.session_id!r} has not ended; metrics need a finished episode"
            )
        turns = _group_turns(session.calls, session.played)
        messages = session.messages
        return cls(
            id=header.session_id,
            experiment_id=header.experiment_id,
            run_id=header.run_id,
            model=header.subject,
            task=header.task,
            difficulty=header.difficulty,
            seed=header.seed,
            number=header.episode,
            replicate=header.replicate,
            state=end.state,
            stop_reason=end.stop_reason,
            duration_s=end.duration_s,
            source=source,
            turns=turns,
            steps=tuple(step for turn in turns for step in turn.steps),
            achievements=MappingProxyType(tally.unlocked),
            outcomes=MappingProxyType(dict(end.outcomes)),
            tally=tally,
            read_messages=read_messages or (lambda: messages),
        )

    @property
    def reward(self) -> float:
        """Sum of all rewards."""
        return self.tally.reward

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens of all calls."""
        return self.tally.tokens

    @property
    def cost_usd(self) -> float | None:
        """Total cost of all calls; None if a price is unknown."""
        return self.tally.cost_usd

    @property
    def messages(self) -> tuple[MessageRecord, ...]:
        """All messages in order, read from the database on each access.

        Each has `message.role` and `message.text`.
        """
        return tuple(self.read_messages())


def _group_turns(
    calls: Sequence[CallRecord], played: Sequence[PlayedRecord]
) -> tuple[EpisodeTurn, ...]:
    """Group calls and played turns by turn number; either may be missing."""
    by_turn: dict[int, list[CallRecord]] = {}
    for call in calls:
        by_turn.setdefault(call.turn, []).append(call)
    played_by_turn = {record.turn: record for record in played}
    return tuple(
        _make_turn(number, by_turn.get(number, ()), played_by_turn.get(number))
        for number in sorted({*by_turn, *played_by_turn})
    )


def _make_turn(
    number: int, calls: Sequence[CallRecord], played: PlayedRecord | None
) -> EpisodeTurn:
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    steps = () if played is None else played.steps
    return EpisodeTurn(
        number=number,
        asked=() if played is None else played.asked,
        unknown=() if played is None else played.unknown,
        malformed=None if played is None else played.malformed,
        skipped=0 if played is None else played.skipped,
        steps=tuple(
            EpisodeStep(
                step.index, number, step.action, step.reward, step.unlocked, step.no_effect
            )
            for step in steps
        ),
        usage=sum((call.usage for call in calls), Usage()),
        cost_usd=sum(costs) if len(costs) == len(calls) else None,
        latency_s=sum(call.latency_s for call in calls),
        calls=len(calls),
    )
