"""Feedback to a model after a turn: formatting and parsing.

A message is a report on the turn, then the line `MARKER`, then the observation as formatted by
`assay.crafter.text`, up to the end. A model's own text cannot forge the marker, because invalid
action names are quoted on one line.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple

from assay.crafter.rules import ACTIONS, COLLECT, MAKE, PLACE, NoEffect
from assay.crafter.text.forms import parse
from assay.crafter.text.observation import FAILURES, Observation
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.store.records import PlayedRecord, StepRecord

MARKER: Final = "--- observation ---"
"""The line before an observation."""
_MAX_OBSERVATION: Final = 10_000


class ActionResult(NamedTuple):
    """Result of one action, parsed from a report."""

    action: str
    worked: bool
    """Whether it had an effect."""
    reason: str | None
    """Reason if it had none."""


def parse_observation(text: str) -> Observation | None:
    """Parse the observation at the end of a message; None if there is none or it is invalid."""
    _, marker, observation = text.rpartition(f"{MARKER}\n")
    if not marker or len(observation) > _MAX_OBSERVATION:
        return None
    try:
        return parse(observation)
    except UsageError:
        return None


def parse_results(text: str) -> tuple[ActionResult, ...]:
    """Parse the results of the actions in a message, in order."""
    return tuple(
        ActionResult(action, not reason, reason or None)
        for action, reason in _RESULT.findall(text.rpartition(f"{MARKER}\n")[0])
    )


def format_report(
    played: "PlayedRecord",
    *,
    max_turns: int,
    cut: int,
    limit: int,
    problems: Sequence[str],
    results: Sequence[str],
    so_far: str,
    actions: Sequence[str] = ACTIONS,
) -> str:
    """Format the report on a turn: each action, each kind of waste, and the results so far."""
    lines = [f"Turn {played.turn} of {max_turns} is over."]
    if played.malformed is not None:
        lines.append(f"Your reply could not be read, so nothing was done: {played.malformed}.")
    lines += [f"{problem}." for problem in problems]
    lines += results
    lines += _list_unplayed(played, cut, limit, actions)
    return "\n".join([*lines, so_far])


def format_crafter_result(step: "StepRecord") -> str:
    """Describe the result of one action in Crafter, on one line."""
    line = _LINES.get((step.action, step.no_effect)) or f"- {step.action}: no effect, ?"
    return f"{line}; achieved {', '.join(step.unlocked)}" if step.unlocked else line


def _list_unplayed(
    played: "PlayedRecord", cut: int, limit: int, actions: Sequence[str]
) -> Iterator[str]:
    for name in played.unknown:
        closest = get_close_matches(name, actions, n=1)
        hint = f"; did you mean {closest[0]}?" if closest else ""
        yield f"There is no action {name!r}{hint}"
    if played.unknown:
        yield f"The actions are: {', '.join(actions)}."
    if cut:
        yield (
            f"You asked for {cut + limit} actions. "
            f"Only {limit} are allowed in a turn, so the last {cut} were not carried out."
        )
    if played.skipped:
        yield f"The last {played.skipped} were not carried out."


def _explain_no_effect(action: str, reason: NoEffect) -> str:
    """Explain why an action had no effect, independent of the player's current position."""
    name = action.partition("_")[2]
    match reason:
        case NoEffect.BLOCKED:
            return "something was in the way"
        case NoEffect.NOTHING_THERE:
            return "nothing there to collect, fight or eat"
        case NoEffect.NOT_RIPE:
            return "the plant was not ripe"
        case NoEffect.NEEDS_TOOL:
            tools = dict.fromkeys(rule.tool for rule in COLLECT.values() if rule.tool)
            return f"it takes a better tool: {' or '.join(tools)}"
        case NoEffect.NO_ROOM:
            return f"no free {' or '.join(PLACE[name].where)} in front"
        case NoEffect.NEEDS_NEARBY:
            return f"no {' and '.join(MAKE[name].nearby)} nearby"
        case NoEffect.NEEDS_ITEMS:
            uses = (PLACE[name] if action.startswith("place_") else MAKE[name]).uses
            return f"it takes {' and '.join(f'{n} {item}' for item, n in uses.items())}"
        case NoEffect.ASLEEP:
            return "you were asleep"


def _format_result(action: str, reason: NoEffect | None) -> str:
    if reason is None:
        return f"- {action}: ok"
    if reason is NoEffect.ASLEEP:
        return f"- {action}: ignored, {_explain_no_effect(action, reason)}"
    return f"- {action}: no effect, {_explain_no_effect(action, reason)}"


_LINES: Final[dict[tuple[str, str | None], str]] = {
    (action, reason): _format_result(action, reason)
    for action, reasons in FAILURES.items()
    for reason in (None, *reasons)
}
_RESULT: Final = re.compile(
    rf"^- ({'|'.join(ACTIONS)}): (?:ok|(?:no effect|ignored), (.+?))(?:; achieved .+)?$",
    re.MULTILINE,
)
