"""Live progress of the models in a run, computed from its events, and its formatting.

Names, reasons and messages are untrusted: they are made printable and shortened here. The cost
of an event does not depend on the number of episodes, because sums are updated incrementally.
Means include completed episodes and the progress of open ones; tokens and cost include all
episodes. This module does not depend on a terminal.
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
    """Sums over episodes; an episode can also be subtracted."""

    episodes: int = 0
    achievements: int = 0
    without: int = 0
    """Number of episodes in environments without achievements."""
    reward: float = 0.0
    invalid_rate: float = 0.0
    turns: int = 0
    share: float = 0.0
    """Sum of the completed fraction of each episode, by turns."""

    def add(self, at: TurnProgress, sign: int = 1) -> None:
        """Add the current state of an open episode, or subtract it with sign -1."""
        self.episodes += sign
        self.achievements += sign * (at.achievements or 0)
        self.without += sign * (at.achievements is None)
        self.reward += sign * at.reward
        self.invalid_rate += sign * (at.invalid / at.asked if at.asked else 0.0)
        self.turns += sign * at.turn
        self.share += sign * at.turn / max(1, at.max_turns)


@dataclass(slots=True)
class LiveTrouble:
    """Retries of calls or episodes of one model."""

    retries: int = 0
    reason: str = ""
    """Reason of the last retry; untrusted text."""
    again_at: float = 0.0
    """Time of the last scheduled retry."""

    def retried(self, reason: str, again_at: float) -> None:
        """Count a retry."""
        self.retries += 1
        self.reason, self.again_at = reason, again_at


@dataclass(slots=True)
class LiveStanding:
    """Progress and results so far of one model."""

    group: str
    """Name of the model; untrusted text."""
    planned: int
    started_at: float | None = None
    ended_at: float | None = None
    stopped: str | None = None
    """Reason why no more of its episodes are started, if any."""
    skipped: int = 0
    """Number of episodes completed before this run."""
    ended: int = 0
    tokens: int = 0
    cost_usd: float | None = 0.0
    """Cost so far; None if a price is unknown."""
    _done: _Sums = field(default_factory=_Sums)
    _open: _Sums = field(default_factory=_Sums)
    _latest: dict[str, TurnProgress] = field(default_factory=dict)
    _turns_made: int = 0
    _max_turns: int = 0

    @property
    def finished(self) -> int:
        """Number of episodes that are done."""
        return self.skipped + self.ended

    @property
    def share(self) -> float:
        """Completed fraction of the work, from 0 to 1; open episodes count by their turns."""
        if not self.planned:
            return 1.0
        return min(1.0, (self.finished + self._open.share) / self.planned)

    @property
    def achievements(self) -> float | None:
        """Mean achievements so far; None before the first turn, or without achievements."""
        if self._done.without + self._open.without:
            return None
        return self._mean(self._done.achievements + self._open.achievements)

    @property
    def reward(self) -> float | None:
        """Mean reward so far; None before the first turn."""
        return self._mean(self._done.reward + self._open.reward)

    @property
    def invalid_rate(self) -> float | None:
        """Mean rate of invalid actions so far; None before the first turn."""
        return self._mean(self._done.invalid_rate + self._open.invalid_rate)

    def seconds_left(self, now: float) -> float | None:
        """Estimate the remaining time from the speed so far; None if that is unknown.

        The expected length of an episode is the mean of completed episodes, or the maximum
        number of turns before one is completed.
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
        """Record a turn of an open episode."""
        before = self._latest.get(trial_id)
        self._latest[trial_id] = at
        self._open.add(at)
        self._max_turns = at.max_turns
        if before is None:
            # A resumed episode starts in the middle; its earlier turns are not counted here.
            self._turns_made += 1
            self._spend(at.tokens, at.cost_usd)
        else:
            self._open.add(before, -1)
            self._turns_made += max(0, at.turn - before.turn)
            self._spend_since(before, at.tokens, at.cost_usd)

    def ended_as(self, trial_id: str, state: TrialState, end: EpisodeEnd | None) -> None:
        """Record the end of an episode."""
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
            self._open = _Sums()  # removes rounding errors
        return at

    def _spend_since(self, at: TurnProgress, tokens: int, cost_usd: float | None) -> None:
        known = None if cost_usd is None or at.cost_usd is None else cost_usd - at.cost_usd
        self._spend(tokens - at.tokens, known)

    def _spend(self, tokens: int, cost_usd: float | None) -> None:
        self.tokens += tokens
        known = self.cost_usd is not None and cost_usd is not None
        self.cost_usd = self.cost_usd + cost_usd if known else None  # type: ignore[operator]


class LiveStandings:
    """Progress of all models of a run, in the order of its plan."""

    def __init__(self) -> None:
        self.groups: dict[str, LiveStanding] = {}
        self.troubles: dict[str, LiveTrouble] = {}
        """Retries by the name of the model or the arm."""

    def take(self, event: Event, now: float) -> LiveStanding | None:
        """Record an event; return the progress of its model, if it belongs to one."""
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
                # The episode is not removed, so that its progress stays visible.
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
    """Format the progress of a model."""
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
        # Imported here: --help loads this module, and the built-in models import numpy.
        from assay.agents.builtin import is_scripted

        if not is_scripted(standing.group):
            parts += [f"{big(standing.tokens)} tokens", cost(standing.cost_usd)]
    left = standing.seconds_left(now)
    if left is not None:
        parts.append(f"{duration(left)} left")
    return f"{short(standing.group)}: {', '.join(parts)}"


def trouble_line(name: str, trouble: LiveTrouble, now: float) -> str:
    """Format the retries of a model: number, time until the next one, and last error."""
    left = trouble.again_at - now
    wait = f", next in {duration(math.ceil(left))}" if left > 0 else ""
    return (
        f"{short(name)}: {counted(trouble.retries, 'retry', 'retries')}{wait}; "
        f"last error: {short(trouble.reason)}"
    )


def turn_line(at: TurnProgress) -> str:
    """Format the state of an episode after a turn, with the note of the turn."""
    note = f": {short(at.note)}" if at.note else ""
    return (
        f"turn {at.turn}/{at.max_turns}, {at.steps} steps,{_achieved(at.achievements)}"
        f" reward {number(at.reward, 1)}{note}"
    )


def _achieved(count: int | None) -> str:
    return "" if count is None else f" {count} achievements,"


def end_line(verdict: TrialVerdict) -> str:
    """Format the end of an episode."""
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
    """Format the reason for the end of a trial: its error, if any."""
    if verdict.error is None:
        return short(verdict.reason)
    return short(f"{verdict.error.type}: {verdict.error.message}")


def short(text: str) -> str:
    """Shorten untrusted text to one line of limited length."""
    return cut(text, _LONGEST_TEXT)


def middle(name: str, width: int) -> str:
    """Shorten a name in its middle, because versions are at its end."""
    shown = printable(name)
    if len(shown) <= width:
        return shown
    head = (width - 1) // 2
    return f"{shown[:head]}…{shown[len(shown) - (width - 1 - head) :]}"


def number(value: float | None, digits: int, scale: float = 1) -> str:
    """Format a number; a dash if it is unknown."""
    # Adding zero removes the sign of a negative zero.
    return "-" if value is None else f"{round(value * scale, digits) + 0.0:.{digits}f}"


def big(count: int) -> str:
    """Format a count with a unit, such as 1.2k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)


def cost(amount: float | None) -> str:
    """Format dollars, with a question mark if the price is unknown."""
    if amount is None:
        return "$?"
    return f"${amount:,.{2 if amount >= 1 or amount == 0 else 4}f}"


def duration(seconds: float) -> str:
    """Format a time in its two largest units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
