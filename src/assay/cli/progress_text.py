"""How the models of a run stand, kept up from its events, and the words and numbers for it.

Names, reasons and messages come from outside: each is made printable and cut short here. An
event costs the same however many episodes there are: sums go along, nothing is added up again.
Means are over episodes that completed and over open ones as far as they are; what was spent is
over all. Knows nothing of terminals.
"""

import math
from dataclasses import dataclass, field

from assay.core.text import counted, cut, printable
from assay.episodes.progress import EpisodeEnd, TurnProgress
from assay.runs.control import TrialVerdict
from assay.runs.events import (
    CallRetried,
    Event,
    GroupEnded,
    GroupStarted,
    GroupStopped,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialInterrupted,
    TrialProgress,
    TrialRetried,
    TrialSkipped,
    TrialStarted,
)
from assay.types import TrialState


@dataclass(slots=True)
class _Sums:
    """Sums over episodes; each may be taken out again."""

    episodes: int = 0
    achievements: int = 0
    without: int = 0
    """Episodes in worlds that have no achievements."""
    reward: float = 0.0
    invalid_rate: float = 0.0
    turns: int = 0
    share: float = 0.0
    """Of their turns that were played, each episode counting 1."""

    def add(self, at: TurnProgress, sign: int = 1) -> None:
        """Add an open episode as it stands, or take it out with the sign -1."""
        self.episodes += sign
        self.achievements += sign * (at.achievements or 0)
        self.without += sign * (at.achievements is None)
        self.reward += sign * at.reward
        self.invalid_rate += sign * (at.invalid / at.asked if at.asked else 0.0)
        self.turns += sign * at.turn
        self.share += sign * at.turn / max(1, at.max_turns)


@dataclass(slots=True)
class LiveTrouble:
    """What went wrong with the calls or episodes of one model, and was or will be retried."""

    retries: int = 0
    reason: str = ""
    """The last one; untrusted text."""
    again_at: float = 0.0
    """When the last one may be tried again."""

    def retried(self, reason: str, again_at: float) -> None:
        """Count one more."""
        self.retries += 1
        self.reason, self.again_at = reason, again_at


@dataclass(slots=True)
class LiveStanding:
    """One model: what is done, what is open, and what it came to so far."""

    group: str
    """The model's name; untrusted text."""
    planned: int
    started_at: float | None = None
    ended_at: float | None = None
    stopped: str | None = None
    """Why no more of its episodes start, if that is so."""
    skipped: int = 0
    """Episodes done before this run."""
    ended: int = 0
    tokens: int = 0
    cost_usd: float | None = 0.0
    """None once a price was not known."""
    _done: _Sums = field(default_factory=_Sums)
    _open: _Sums = field(default_factory=_Sums)
    _latest: dict[str, TurnProgress] = field(default_factory=dict)
    _turns_made: int = 0
    _max_turns: int = 0

    @property
    def finished(self) -> int:
        """Episodes that need nothing more."""
        return self.skipped + self.ended

    @property
    def share(self) -> float:
        """How much of the work is done, from 0 to 1; open episodes count by their turns."""
        if not self.planned:
            return 1.0
        return min(1.0, (self.finished + self._open.share) / self.planned)

    @property
    def achievements(self) -> float | None:
        """The mean so far; None before the first turn, and in worlds that have none."""
        if self._done.without + self._open.without:
            return None
        return self._mean(self._done.achievements + self._open.achievements)

    @property
    def reward(self) -> float | None:
        """The mean so far."""
        return self._mean(self._done.reward + self._open.reward)

    @property
    def invalid_rate(self) -> float | None:
        """The mean so far."""
        return self._mean(self._done.invalid_rate + self._open.invalid_rate)

    def seconds_left(self, now: float) -> float | None:
        """What the rest takes at the pace so far; None before there is one.

        An episode is expected to be as long as those that ended, or else as it may be.
        """
        if self.started_at is None or self.ended_at is not None or not self._turns_made:
            return None
        known = self._done.episodes
        length = self._done.turns / known if known else self._max_turns
        left = (self.planned - self.finished) * length - self._open.turns
        pace = self._turns_made / max(1e-9, now - self.started_at)
        return max(0.0, left) / pace

    def _mean(self, total: float) -> float | None:
        episodes = self._done.episodes + self._open.episodes
        return total / episodes if episodes else None

    def progressed(self, trial_id: str, at: TurnProgress) -> None:
        """An open episode played a turn."""
        before = self._latest.get(trial_id)
        self._latest[trial_id] = at
        self._open.add(at)
        self._max_turns = at.max_turns
        if before is None:
            # A resumed episode begins late; the turns before are not this run's work.
            self._turns_made += 1
            self._spend(at.tokens, at.cost_usd)
        else:
            self._open.add(before, -1)
            self._turns_made += max(0, at.turn - before.turn)
            self._spend_since(before, at.tokens, at.cost_usd)

    def ended_as(self, trial_id: str, state: TrialState, end: EpisodeEnd | None) -> None:
        """An episode came to its end."""
        at = self._closed(trial_id)
        self.ended += 1
        if end is None:
            return
        if at is None:
            self._spend(end.tokens, end.cost_usd)
        else:
            self._spend_since(at, end.tokens, end.cost_usd)
        if state is TrialState.RESULT:
            self._done.episodes += 1
            self._done.achievements += end.achievements or 0
            self._done.without += end.achievements is None
            self._done.reward += end.reward
            self._done.invalid_rate += end.invalid_rate
            self._done.turns += end.turns

    def _closed(self, trial_id: str) -> TurnProgress | None:
        at = self._latest.pop(trial_id, None)
        if at is not None:
            self._open.add(at, -1)
        if not self._latest:
            self._open = _Sums()  # what rounding left behind
        return at

    def _spend_since(self, at: TurnProgress, tokens: int, cost_usd: float | None) -> None:
        known = None if cost_usd is None or at.cost_usd is None else cost_usd - at.cost_usd
        self._spend(tokens - at.tokens, known)

    def _spend(self, tokens: int, cost_usd: float | None) -> None:
        self.tokens += tokens
        known = self.cost_usd is not None and cost_usd is not None
        self.cost_usd = self.cost_usd + cost_usd if known else None  # type: ignore[operator]


class LiveStandings:
    """All models of a run, in the order of its plan."""

    def __init__(self) -> None:
        self.groups: dict[str, LiveStanding] = {}
        self.troubles: dict[str, LiveTrouble] = {}
        """By the name of the model or of the arm."""

    def take(self, event: Event, now: float) -> LiveStanding | None:
        """Note an event; returns the standing that it changed, if it was one model's."""
        match event:
            case TrialProgress(trial=trial, payload=payload):
                standing = self.groups[trial.group]
                if isinstance(payload, TurnProgress):
                    standing.progressed(trial.id, payload)
                return standing
            case TrialStarted(trial=trial):
                standing = self.groups[trial.group]
                if standing.started_at is None:
                    standing.started_at = now
                return standing
            case TrialEnded(trial=trial, verdict=verdict):
                standing = self.groups[trial.group]
                value = verdict.value if isinstance(verdict.value, EpisodeEnd) else None
                standing.ended_as(trial.id, verdict.state, value)
                return standing
            case TrialSkipped(trial=trial):
                self.groups[trial.group].skipped += 1
                return self.groups[trial.group]
            case TrialRetried(trial=trial, wait=wait, verdict=verdict):
                reason = verdict.error.message if verdict.error else verdict.reason
                self._trouble(trial.group).retried(reason, now + wait)
                return self.groups[trial.group]
            case TrialInterrupted(trial=trial):
                # It stays where it stands, so that one sees how far the model came.
                return self.groups[trial.group]
            case CallRetried(model=model, reason=reason, wait=wait):
                self._trouble(model).retried(reason, now + wait)
        return self._of_groups(event, now)

    def _trouble(self, name: str) -> LiveTrouble:
        return self.troubles.setdefault(name, LiveTrouble())

    def _of_groups(self, event: Event, now: float) -> LiveStanding | None:
        match event:
            case RunStarted(planned=planned):
                self.groups = {
                    name: LiveStanding(name, count) for name, count in planned.items()
                }
            case GroupStarted(group=group, planned=planned):
                return self.groups.setdefault(group, LiveStanding(group, planned))
            case RunEnded():
                for trouble in self.troubles.values():
                    trouble.again_at = now
            case GroupStopped(group=group, stop=stop):
                self.groups[group].stopped = stop.reason
                return self.groups[group]
            case GroupEnded(group=group, tally=tally):
                self.groups[group].ended_at = now
                self.groups[group].planned -= tally.unneeded
                return self.groups[group]
        return None


_LONGEST_TEXT = 200


def standing_line(standing: LiveStanding, now: float) -> str:
    """How a model stands."""
    parts = [
        f"{standing.finished} of {standing.planned} episodes",
        f"{100 * standing.share:.0f} % done",
    ]
    if standing.achievements is not None:
        parts.append(f"{number(standing.achievements, 1)} achievements")
    if standing.reward is not None:
        parts += [
            f"reward {number(standing.reward, 1)}",
            f"invalid {number(standing.invalid_rate, 1, 100)} %",
        ]
        # Not above: --help loads this module, and the built-in models load numpy.
        from assay.agents.builtin import is_scripted

        if not is_scripted(standing.group):
            parts += [f"{big(standing.tokens)} tokens", cost(standing.cost_usd)]
    left = standing.seconds_left(now)
    if left is not None:
        parts.append(f"{duration(left)} left")
    return f"{short(standing.group)}: {', '.join(parts)}"


def trouble_line(name: str, trouble: LiveTrouble, now: float) -> str:
    """What went wrong with a model: how often it was retried, and how long that waits."""
    left = trouble.again_at - now
    wait = f", next in {duration(math.ceil(left))}" if left > 0 else ""
    return (
        f"{short(name)}: {counted(trouble.retries, 'retry', 'retries')}{wait}; "
        f"last error: {short(trouble.reason)}"
    )


def turn_line(at: TurnProgress) -> str:
    """Where an episode stands after a turn, and what the turn was about."""
    note = f": {short(at.note)}" if at.note else ""
    return (
        f"turn {at.turn}/{at.max_turns}, {at.steps} steps,{_achieved(at.achievements)}"
        f" reward {number(at.reward, 1)}{note}"
    )


def _achieved(count: int | None) -> str:
    return "" if count is None else f" {count} achievements,"


def end_line(verdict: TrialVerdict) -> str:
    """How an episode ended."""
    end = verdict.value
    if verdict.state is not TrialState.RESULT or not isinstance(end, EpisodeEnd):
        words = {
            TrialState.RESULT: "ended",
            TrialState.FAILURE: "failed",
            TrialState.INFRASTRUCTURE: "infrastructure error",
        }
        return f"{words[verdict.state]}: {why(verdict)}"
    return (
        f"{_achieved(end.achievements)} reward {number(end.reward, 1)}, {end.steps} steps,"
        f" {end.turns} turns, invalid {100 * end.invalid_rate:.1f} %,"
        f" {big(end.tokens)} tokens, {cost(end.cost_usd)}, {short(end.stop_reason)}"
    ).lstrip()


def why(verdict: TrialVerdict) -> str:
    """What an end that is no result was due to."""
    if verdict.error is None:
        return short(verdict.reason)
    return short(f"{verdict.error.type}: {verdict.error.message}")


def short(text: str) -> str:
    """Text from outside, in one line of a bounded length."""
    return cut(text, _LONGEST_TEXT)


def middle(name: str, width: int) -> str:
    """A name cut in its middle: what tells versions apart is at the end."""
    shown = printable(name)
    if len(shown) <= width:
        return shown
    head = (width - 1) // 2
    return f"{shown[:head]}…{shown[len(shown) - (width - 1 - head) :]}"


def number(value: float | None, digits: int, scale: float = 1) -> str:
    """A number that may not be known yet."""
    # Adding zero takes the sign from a zero.
    return "-" if value is None else f"{round(value * scale, digits) + 0.0:.{digits}f}"


def big(count: int) -> str:
    """A count in three digits or so."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)


def cost(amount: float | None) -> str:
    """Dollars, or a question mark where a price is not known."""
    if amount is None:
        return "$?"
    return f"${amount:,.{2 if amount >= 1 or amount == 0 else 4}f}"


def duration(seconds: float) -> str:
    """A time in its two largest units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
