"""The live table of a run: a line per model, and what is retried below them.

One text, laid out by hand: a Rich table of the same size takes several times as long.
"""

from collections.abc import Mapping
from textwrap import wrap

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from assay._util.text import printable
from assay.agents.builtin import is_scripted
from assay.cli.live_words import big, cost, duration, middle, number, trouble_line
from assay.cli.standings import LiveStanding, LiveTrouble

__all__ = ["live_table"]

_BAR, _ROOM_FOR_BAR = 12, 92
_NARROWEST_NAME = 12
_MOST_TROUBLES = 3
"""Models whose retries stand in the table at once."""
_DISPENSABLE = ("Tokens", "Reward", "Cost")
"""What a narrow terminal does without, the first of them first."""
_LINES_LEFT = 4
"""Of the terminal, for what else is printed."""


def live_table(
    groups: list[LiveStanding],
    troubles: Mapping[str, LiveTrouble],
    now: float,
    width: int,
    height: int,
) -> Text:
    """The table as it is at a moment, for a terminal of a size."""
    rows = _trouble_rows(troubles, now, width)
    table = _table(groups, now, width, max(1, height - _LINES_LEFT - len(rows)))
    for row in rows:
        table.append(f"\n{row}", "yellow")
    return table


def _trouble_rows(troubles: Mapping[str, LiveTrouble], now: float, width: int) -> list[str]:
    """What is retried: the models that failed last."""
    latest = sorted(troubles, key=lambda name: troubles[name].again_at)[-_MOST_TROUBLES:]
    return [
        line
        for name in troubles
        if name in latest
        for line in _folded(trouble_line(name, troubles[name], now), width)
    ]


def _folded(text: str, width: int) -> list[str]:
    first, *rest = wrap(text, max(20, width), subsequent_indent="  ") or [""]
    if not rest:
        return [first]
    return [first, rest[0] if len(rest) == 1 else f"{rest[0][: width - 1]}…"]


def _table(groups: list[LiveStanding], now: float, width: int, height: int) -> Text:
    shown, rest = _fitting(groups, height)
    columns = _columns(shown, now)
    for head in _DISPENSABLE:
        if _width(columns) + _NARROWEST_NAME > width:
            columns.pop(head, None)
    bar = 1 + _BAR if width >= _ROOM_FOR_BAR else 0
    longest = max([len("Model"), *(cell_len(printable(one.group)) for one in shown)])
    room = min(longest, max(_NARROWEST_NAME, width - _width(columns) - bar))
    table = Text(no_wrap=True, overflow="crop")
    table.append(f"{'Model':{room + bar}}{_line(columns, None)}", "dim")
    for at, standing in enumerate(shown):
        table.append(f"\n{set_cell_size(middle(standing.group, room), room)}")
        if bar:
            done = int(_BAR * standing.share)
            table.append(f" {'━' * done}", "green").append("─" * (_BAR - done), "dim")
        table.append(_line(columns, at))
    return table.append(f"\n{rest}", "dim") if rest else table


def _line(columns: dict[str, list[str]], at: int | None) -> str:
    """The heads, or one row, each at the right end of its column."""
    return "".join(
        f"{head if at is None else texts[at]:>{1 + _widest(head, texts)}}"
        for head, texts in columns.items()
    )


def _columns(shown: list[LiveStanding], now: float) -> dict[str, list[str]]:
    paid = {
        "Tokens": ["" if is_scripted(one.group) else big(one.tokens) for one in shown],
        "Cost": ["" if is_scripted(one.group) else cost(one.cost_usd) for one in shown],
    }
    return {
        "Episodes": [f"{one.finished}/{one.planned}" for one in shown],
        "Ach.": [number(one.achievements, 1) for one in shown],
        "Reward": [number(one.reward, 1) for one in shown],
        "Invalid%": [number(one.invalid_rate, 1, 100) for one in shown],
        **{head: texts for head, texts in paid.items() if any(texts)},
        "Left": [_left(one, now) for one in shown],
    }


def _width(columns: dict[str, list[str]]) -> int:
    return sum(1 + _widest(head, texts) for head, texts in columns.items())


def _widest(head: str, texts: list[str]) -> int:
    return max(map(len, [head, *texts]))


def _fitting(groups: list[LiveStanding], height: int) -> tuple[list[LiveStanding], str]:
    """As many models as there are lines for: those at work, then those that ended last."""
    if len(groups) <= height:
        return groups, ""

    def urgency(standing: LiveStanding) -> tuple[int, float]:
        if standing.started_at is not None and standing.ended_at is None:
            return 0, standing.started_at
        return (2, 0.0) if standing.ended_at is None else (1, -standing.ended_at)

    kept = {id(standing) for standing in sorted(groups, key=urgency)[:height]}
    left = [standing for standing in groups if id(standing) not in kept]
    done = sum(standing.ended_at is not None for standing in left)
    rest = f"and {len(left)} more models, {done} of them done"
    return [standing for standing in groups if id(standing) in kept], rest


def _left(standing: LiveStanding, now: float) -> str:
    if standing.stopped is not None:
        return "stopped"
    if standing.ended_at is not None:
        return "done" if standing.finished == standing.planned else "stopped"
    if standing.started_at is None:
        return "waiting"
    left = standing.seconds_left(now)
    return "…" if left is None else duration(left)
