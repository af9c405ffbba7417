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
class _EpisodeSums:
    """Sums over episodes; an episode can also be subtracted."""

    episodes: int = 0
    achievements: int = 0
    without_achievements: int = 0
    """Number of episodes in environments without achievements."""
    reward: float = 0.0
    invalid_rate: float = 0.0
    turns: int = 0
    share: float = 0.0
    """Sum of the completed fraction of each episode, by turns."""

    def add(self, progress: TurnProgress, sign: int = 1) -> None:
        """Add the current state of an open episode, or subtract it with sign -1."""
        self.episodes += sign
        self.achievements += sign * (progress.achievements or 0)
        self.without_achievements += sign * (progress.achievements is None)
        self.reward += sign * progress.reward
        self.invalid_rate += sign * (
            progress.invalid / progress.asked if progress.asked else 0.0
        )
        self.turns += sign * progress.turn
        self.share += sign * progress.turn / max(1, progress.max_turns)


@dataclass(slots=True)
class RetryStatus:
    """Retries of calls or episodes of one model."""

    retries: int = 0
    reason: str = ""
    """Reason of the last retry; untrusted text."""
    next_at: float = 0.0
    """Time of the last scheduled retry."""

    def count_retry(self, reason: str, next_at: float) -> None:
        """Count a retry."""
        self.retries += 1
        self.reason, self.next_at = reason, next_at


@dataclass(slots=True)
class ModelProgress:
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
    _done: _EpisodeSums = field(default_factory=_EpisodeSums)
    _open: _EpisodeSums = field(default_factory=_EpisodeSums)
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
        if self._done.without_achievements + self._open.without_achievements:
            return None
        return self._compute_mean(self._done.achievements + self._open.achievements)

    @property
    def reward(self) -> float | None:
        """Mean reward so far; None before the first turn."""
        return self._compute_mean(self._done.reward + self._open.reward)

    @property
    def invalid_rate(self) -> float | None:
        """Mean rate of invalid actions so far; None before the first turn."""
        return self._compute_mean(self._done.invalid_rate + self._open.invalid_rate)

    def estimate_seconds_left(self, now: float) -> float | None:
        """Estimate the remaining time from the speed so far; None if that is unknown.

        The expected length of an episode is the mean of completed episodes, or the maximum
        number of turns before one is completed.
        """
        if self.started_at is None or self.ended_at is not None or not self._turns_made:
            return None
        known = self._done.episodes
        length = self._done.turns / known if known else self._max_turns
        turns_left = (self.planned - self.finished) * length - self._open.turns
        pace = self._turns_made / max(1e-9, now - self.started_at)
        return max(0.0, turns_left) / pace

    def _compute_mean(self, total: float) -> float | None:
        episodes = self._done.episodes + self._open.episodes
        return total / episodes if episodes else None

    def record_turn(self, trial_id: str, progress: TurnProgress) -> None:
        """Record a turn of an open episode."""
        earlier = self._latest.get(trial_id)
        self._latest[trial_id] = progress
        self._open.add(progress)
        self._max_turns = progress.max_turns
        if earlier is None:
            # A resumed episode starts in the middle; its earlier turns are not counted here.
            self._turns_made += 1
            self._add_spending(progress.tokens, progress.cost_usd)
        else:
            self._open.add(earlier, -1)
            self._turns_made += max(0, progress.turn - earlier.turn)
            self._add_spending_since(earlier, progress.tokens, progress.cost_usd)

    def record_end(self, trial_id: str, state: TrialState, end: EpisodeEnd | None) -> None:
        """Record the end of an episode."""
        last = self._close_episode(trial_id)
        self.ended += 1
        if end is None:
            return
        if last is None:
            self._add_spending(end.tokens, end.cost_usd)
        else:
            self._add_spending_since(last, end.tokens, end.cost_usd)
        if state is TrialState.RESULT:
            self._done.episodes += 1
            self._done.achievements += end.achievements or 0
            self._done.without_achievements += end.achievements is None
            self._done.reward += end.reward
            self._done.invalid_rate += end.invalid_rate
            self._done.turns += end.turns

    def _close_episode(self, trial_id: str) -> TurnProgress | None:
        last = self._latest.pop(trial_id, None)
        if last is not None:
            self._open.add(last, -1)
        if not self._latest:
            self._open = _EpisodeSums()  # removes rounding errors
        return last

    def _add_spending_since(
        self, earlier: TurnProgress, tokens: int, cost_usd: float | None
    ) -> None:
        known = (
            None
            if cost_usd is None or earlier.cost_usd is None
            else cost_usd - earlier.cost_usd
        )
        self._add_spending(tokens - earlier.tokens, known)

    def _add_spending(self, tokens: int, cost_usd: float | None) -> None:
        self.tokens += tokens
        known = self.cost_usd is not None and cost_usd is not None
        self.cost_usd = self.cost_usd + cost_usd if known else None  # type: ignore[operator]


class LiveProgress:
    """Progress of all models of a run, in the order of its plan."""

    def __init__(self) -> None:
        self.groups: dict[str, ModelProgress] = {}
        self.retries: dict[str, RetryStatus] = {}
        """Retries by the name of the model or the arm."""

    def record_event(self, event: Event, now: float) -> ModelProgress | None:
        """Record an event; return the progress of its model, if it belongs to one."""
        match event:
            case TrialProgress(trial=trial, payload=payload):
                progress = self.groups[trial.group]
                if isinstance(payload, TurnProgress):
                    progress.record_turn(trial.id, payload)
                return progress
            case TrialStarted(trial=trial):
                progress = self.groups[trial.group]
                if progress.started_at is None:
                    progress.started_at = now
                return progress
            case TrialEnded(trial=trial, verdict=verdict):
                progress = self.groups[trial.group]
                value = verdict.value if isinstance(verdict.value, EpisodeEnd) else None
                progress.record_end(trial.id, verdict.state, value)
                return progress
            case TrialSkipped(trial=trial):
                self.groups[trial.group].skipped += 1
                return self.groups[trial.group]
            case TrialRetried(trial=trial, wait=wait, verdict=verdict):
                reason = verdict.error.message if verdict.error else verdict.reason
                self._find_retries(trial.group).count_retry(reason, now + wait)
                return self.groups[trial.group]
            case TrialInterrupted(trial=trial):
                # The episode is not removed, so that its progress stays visible.
                return self.groups[trial.group]
            case CallRetried(model=model, reason=reason, wait=wait):
                self._find_retries(model).count_retry(reason, now + wait)
        return self._record_group_event(event, now)

    def _find_retries(self, name: str) -> RetryStatus:
        return self.retries.setdefault(name, RetryStatus())

    def _record_group_event(self, event: Event, now: float) -> ModelProgress | None:
        match event:
            case RunStarted(planned=planned):
                self.groups = {
                    name: ModelProgress(name, count) for name, count in planned.items()
                }
            case GroupStarted(group=group, planned=planned):
                return self.groups.setdefault(group, ModelProgress(group, planned))
            case RunEnded():
                for retries in self.retries.values():
                    retries.next_at = now
            case GroupStopped(group=group, stop=stop):
                self.groups[group].stopped = stop.reason
                return self.groups[group]
            case GroupEnded(group=group, tally=tally):
                self.groups[group].ended_at = now
                self.groups[group].planned -= tally.unneeded
                return self.groups[group]
        return None


_MAX_TEXT = 200


def format_progress(progress: ModelProgress, now: float) -> str:
    """Format the progress of a model."""
    parts = [
        f"{progress.finished} of {progress.planned} episodes",
        f"{100 * progress.share:.0f} % done",
    ]
    if progress.achievements is not None:
        parts.append(f"{format_number(progress.achievements, 1)} achievements")
    if progress.reward is not None:
        parts += [
            f"reward {format_number(progress.reward, 1)}",
            f"invalid {format_number(progress.invalid_rate, 1, 100)} %",
        ]
        # Imported here: --help loads this module, and the built-in models import numpy.
        from assay.agents.builtin import is_scripted

        if not is_scripted(progress.group):
            parts += [f"{format_count(progress.tokens)} tokens", format_cost(progress.cost_usd)]
    seconds = progress.estimate_seconds_left(now)
    if seconds is not None:
        parts.append(f"{format_duration(seconds)} left")
    return f"{shorten(progress.group)}: {', '.join(parts)}"


def format_retries(name: str, retries: RetryStatus, now: float) -> str:
    """Format the retries of a model: number, time until the next one, and last error."""
    seconds = retries.next_at - now
    wait = f", next in {format_duration(math.ceil(seconds))}" if seconds > 0 else ""
    return (
        f"{shorten(name)}: {counted(retries.retries, 'retry', 'retries')}{wait}; "
        f"last error: {shorten(retries.reason)}"
    )


def format_turn(progress: TurnProgress) -> str:
    """Format the state of an episode after a turn, with the note of the turn."""
    note = f": {shorten(progress.note)}" if progress.note else ""
    return (
        f"turn {progress.turn}/{progress.max_turns}, {progress.steps} steps,"
        f"{_format_achievements(progress.achievements)}"
        f" reward {format_number(progress.reward, 1)}{note}"
    )


def _format_achievements(count: int | None) -> str:
    return "" if count is None else f" {count} achievements,"


def format_trial_end(verdict: TrialVerdict) -> str:
    """Format the end of an episode."""
    end = verdict.value
    if verdict.state is not TrialState.RESULT or not isinstance(end, EpisodeEnd):
        labels = {
            TrialState.RESULT: "ended",
            TrialState.FAILURE: "failed",
            TrialState.INFRASTRUCTURE: "infrastructure error",
        }
        return f"{labels[verdict.state]}: {format_reason(verdict)}"
    return (
        f"{_format_achievements(end.achievements)} reward {format_number(end.reward, 1)},"
        f" {end.steps} steps, {end.turns} turns, invalid {100 * end.invalid_rate:.1f} %,"
        f" {format_count(end.tokens)} tokens, {format_cost(end.cost_usd)},"
        f" {shorten(end.stop_reason)}"
    ).lstrip()


def format_reason(verdict: TrialVerdict) -> str:
    """Format the reason for the end of a trial: its error, if any."""
    if verdict.error is None:
        return shorten(verdict.reason)
    return shorten(f"{verdict.error.type}: {verdict.error.message}")


def shorten(text: str) -> str:
    """Shorten untrusted text to one line of limited length."""
    return cut(text, _MAX_TEXT)


def shorten_middle(name: str, width: int) -> str:
    """Shorten a name in its middle, because versions are at its end."""
    text = printable(name)
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def format_number(value: float | None, digits: int, scale: float = 1) -> str:
    """Format a number; a dash if it is unknown."""
    # Adding zero removes the sign of a negative zero.
    return "-" if value is None else f"{round(value * scale, digits) + 0.0:.{digits}f}"


def format_count(count: int) -> str:
    """Format a count with a unit, such as 1.2k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)


def format_cost(amount: float | None) -> str:
    """Format dollars, with a question mark if the price is unknown."""
    if amount is None:
        return "$?"
    return f"${amount:,.{2 if amount >= 1 or amount == 0 else 4}f}"


def format_duration(seconds: float) -> str:
    """Format a time in its two largest units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
