"""One recorded episode as a metric sees it: typed, read-only, and free of how it is stored.

Made from a `SessionRecord`. Messages are the bulk of a session, so that they are read when a
metric asks for them. Knows nothing of metrics.
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
    """One step of the environment."""

    index: int
    """Counted from 1 over the whole episode."""
    turn: int
    """The turn that asked for it, counted from 1."""
    action: str
    reward: float
    unlocked: tuple[str, ...]
    """Achievements reached for the first time."""
    no_effect: str | None
    """Why the action changed nothing, `asleep` among the reasons; None if it had an effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeTurn:
    """One turn: what the model was asked, and what was played."""

    number: int
    """Counted from 1."""
    asked: tuple[str, ...]
    """The actions it asked for, unknown ones included."""
    unknown: tuple[str, ...]
    """Those among them that do not exist."""
    malformed: str | None
    """What was wrong with the answer, if it could not be read."""
    skipped: int
    """Known actions that were not played, because the episode had ended."""
    steps: tuple[EpisodeStep, ...]
    usage: Usage
    """Its tokens over all calls: prompt, completion, cached, reasoning, total."""
    cost_usd: float | None
    """None if the price of a call is not known."""
    latency_s: float
    calls: int
    """Calls of the model: 1 for most agents, 0 for one that decided without asking."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episode:
    """One episode that has ended."""

    id: str
    """The session id."""
    experiment_id: str
    run_id: str
    model: str
    """Who played."""
    task: str
    """For episodes of Crafter `crafter/<difficulty>`."""
    difficulty: str | None
    seed: int | None
    number: int
    """Counted from 0 within the experiment."""
    replicate: int
    """0 unless a world is played again."""
    state: TrialState
    """Metrics are given results only."""
    stop_reason: str
    """A `StopReason`, or `terminate: ` and the model's reason."""
    duration_s: float
    """Seconds played, without waiting for a turn."""
    source: str = "assay"
    """The format it was imported from, or assay."""
    turns: tuple[EpisodeTurn, ...] = field(repr=False)
    steps: tuple[EpisodeStep, ...] = field(repr=False)
    achievements: Mapping[str, int] = field(repr=False)
    """Those unlocked, in the order they came, each with the index of its step."""
    outcomes: Mapping[str, float] = field(repr=False)
    """The numbers that are stored for it already."""
    tally: EpisodeTotals = field(repr=False)
    """Its totals: actions asked for, the four kinds of waste, and what follows from them."""
    read_messages: Callable[[], Sequence[MessageRecord]] = field(repr=False)
    """What `messages` calls."""

    @classmethod
    def of(
        cls,
        session: SessionRecord,
        *,
        source: str = "assay",
        read_messages: Callable[[], Sequence[MessageRecord]] | None = None,
    ) -> "Episode":
        """The view of a session; without `read_messages`, it holds on to its messages.

        Raises:
            UsageError: The session goes on.
        """
        header, end, tally = session.header, session.end, EpisodeTotals.of(session)
        if end is None:
            raise UsageError(
                f"episode {header.session_id!r} has not ended; metrics are for those that have"
            )
        turns = _turns(session.calls, session.played)
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
        """The sum of all rewards."""
        return self.tally.reward

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens of all calls."""
        return self.tally.tokens

    @property
    def cost_usd(self) -> float | None:
        """What all calls cost; None if the price of one is not known."""
        return self.tally.cost_usd

    @property
    def messages(self) -> tuple[MessageRecord, ...]:
        """All messages in their order, read from the store each time this is asked for.

        `message.role` and `message.text` of each are what was said, by whom.
        """
        return tuple(self.read_messages())


def _turns(
    calls: Sequence[CallRecord], played: Sequence[PlayedRecord]
) -> tuple[EpisodeTurn, ...]:
    """Calls and what was played of them, by turn; either may be missing."""
    by_turn: dict[int, list[CallRecord]] = {}
    for call in calls:
        by_turn.setdefault(call.turn, []).append(call)
    plays = {each.turn: each for each in played}
    return tuple(
        _turn(number, by_turn.get(number, ()), plays.get(number))
        for number in sorted({*by_turn, *plays})
    )


def _turn(number: int, calls: Sequence[CallRecord], played: PlayedRecord | None) -> EpisodeTurn:
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
