"""How a run goes, in words and short numbers, for displays of one line.

Names, reasons and messages come from outside: each is made printable and cut short here.
"""

import math

from assay._util.text import counted, cut, printable
from assay.cli.standings import LiveStanding, LiveTrouble
from assay.rollouts.progress import EpisodeEnd, TurnProgress
from assay.trials import TrialVerdict
from assay.types import TrialState

__all__ = [
    "big",
    "cost",
    "duration",
    "end_line",
    "middle",
    "number",
    "short",
    "standing_line",
    "trouble_line",
    "turn_line",
    "why",
]

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
