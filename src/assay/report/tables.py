"""The tables at the end of a run, for a terminal or as plain text.

An order of models is never one of means alone: those that cannot be told apart share a
place, and sentences say who is better than whom. Names and messages are untrusted and reach
the terminal as text, never as markup.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from assay._util.text import printable
from assay.judge.ranking import RANKED, Ranking
from assay.report import cells
from assay.report.anchors import HUMAN
from assay.report.cells import DASH, Cell
from assay.report.grid import Grid, Row
from assay.report.ranking import ranking_sentences
from assay.report.summary import ModelSummary, beside_humans
from assay.stats import Interval
from assay.types import TrialState

__all__ = ["RunReport", "as_text"]

_BASELINE = "*"
_LONGEST_MESSAGE = 300
_STATES = {
    TrialState.FAILURE: "failed",
    TrialState.INFRASTRUCTURE: "ended by infrastructure errors",
}


@dataclass(frozen=True, slots=True)
class RunReport:
    """All tables of a run, what went wrong in it, and the ids to ask for it by."""

    summaries: Sequence[ModelSummary]
    run_id: str | None = None
    rankings: Sequence[Ranking] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The parts in the order they are read, an empty line between them."""
        for at, part in enumerate(self._parts()):
            if at:
                yield Text()
            if isinstance(part, Text) and options.ascii_only:
                part = Text(cells.only_ascii(part.plain))
            yield part

    def _parts(self) -> Iterator[RenderableType]:
        ordered = sorted(self.summaries, key=lambda one: one.baseline)
        human = beside_humans(ordered)
        yield _performance(ordered, human=human)
        yield _spending(ordered)
        yield _invalid(ordered)
        yield _achievements(ordered, human=human)
        yield from map(_ranking, self.rankings)
        yield _notes(ordered, human=human, tested=bool(self.rankings))
        if troubles := _troubles(ordered):
            yield troubles
        if ids := self._ids(ordered):
            yield ids

    def _ids(self, ordered: Sequence[ModelSummary]) -> Text | None:
        lines = [f"Run {cells.name(self.run_id)}"] if self.run_id else []
        lines += [
            f"  experiment {cells.name(id)}  {cells.name(name)}"
            for one in ordered
            for id, name in one.experiments
        ]
        return Text("\n".join(lines)) if lines else None


def as_text(report: RenderableType, width: int = 100) -> str:
    """A report for a file or a pipe: no colours, no codes, no line longer than `width`."""
    console = Console(
        file=io.StringIO(), width=width, color_system=None, force_terminal=False, record=False
    )
    with console.capture() as captured:
        console.print(report)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _grid(
    title: str,
    summaries: Sequence[ModelSummary],
    columns: dict[str, Callable[[ModelSummary], Cell]],
    human: dict[str, Cell] | None = None,
) -> Grid:
    rows = [
        Row(_label(one), [cell(one) for cell in columns.values()], dim=one.baseline)
        for one in summaries
    ]
    if human is not None:
        rows.append(Row(HUMAN.name, [human.get(head, Cell(DASH)) for head in columns], True))
    return Grid(title, list(columns), rows)


def _label(summary: ModelSummary) -> str:
    return cells.name(summary.model) + (_BASELINE if summary.baseline else "")


def _performance(summaries: Sequence[ModelSummary], *, human: bool) -> Grid:
    anchor = {
        "Episodes": cells.count(HUMAN.episodes),
        "Avg Steps": Cell(f"{HUMAN.steps:.1f}"),
        "Crafter score": Cell(f"{HUMAN.score:.1f}", f"(n={HUMAN.episodes})"),
    }
    return _grid(
        "Performance",
        summaries,
        {
            "Episodes": lambda one: cells.count(one.started),
            "Success%": lambda one: Cell(
                f"{100 * one.success.point:.1f}%" if one.success else DASH
            ),
            "Avg Reward": lambda one: cells.mean(one.reward),
            "Avg Steps": lambda one: cells.mean(one.steps, 1),
            "Avg Duration": lambda one: cells.seconds(one.duration_s),
            "Crafter score": _score,
        },
        anchor if human else None,
    )


def _score(summary: ModelSummary) -> Cell:
    if summary.score is None:
        return Cell(DASH)
    bounds = ""
    if summary.score_interval is not None and summary.score_interval.known:
        bounds = f"{summary.score_interval.low:.1f}-{summary.score_interval.high:.1f}, "
    return Cell(f"{summary.score:.1f}", f"({bounds}n={summary.results})")


def _spending(summaries: Sequence[ModelSummary]) -> Grid:
    return _grid(
        "Tokens and dollars per episode, and in all",
        summaries,
        {
            "Avg Turns": lambda one: cells.mean(one.turns, 1),
            "Avg Tokens": lambda one: cells.mean(one.tokens, 0),
            "Avg Dollars": lambda one: cells.dollars(one.cost_usd),
            "Total Tokens": lambda one: cells.count(one.tokens_spent),
            "Total Dollars": lambda one: cells.total_dollars(one.cost_spent),
        },
    )


def _invalid(summaries: Sequence[ModelSummary]) -> Grid:
    return _grid(
        "Invalid actions",
        summaries,
        {
            "Avg Invalid%": lambda one: cells.percent(one.invalid_rate),
            "Total Invalid": lambda one: cells.count(one.invalid),
            "Total Actions": lambda one: cells.count(one.actions),
            "Unknown": lambda one: cells.count(one.unknown),
            "No effect": lambda one: cells.count(one.no_effect),
            "Asleep": lambda one: cells.count(one.asleep),
            "Malformed": lambda one: cells.count(one.malformed),
        },
    )


def _achievements(summaries: Sequence[ModelSummary], *, human: bool) -> Grid:
    return _grid(
        "Achievements, by environment step",
        summaries,
        {
            "Avg Ach.": lambda one: cells.mean(one.achievements),
            "Total Ach.": lambda one: cells.count(one.unlocked),
            "Unique Ach.": lambda one: cells.count(one.unique),
            "Early (0-25)": lambda one: cells.count(one.early),
            "Mid (26-50)": lambda one: cells.count(one.mid),
            "Late (51+)": lambda one: cells.count(one.late),
        },
        {"Avg Ach.": Cell(f"{HUMAN.achievements:.2f}", f"SD {HUMAN.achievements_sd:.2f}")}
        if human
        else None,
    )


def _ranking(ranking: Ranking) -> Text:
    """The places, an equals sign after those that are shared, and the verdicts in words."""
    lines = [Text(RANKED[ranking.metric], style="bold")]
    for one in ranking.places:
        cell = _RANKED_CELLS[ranking.metric](one.mean)
        mark = "=" if one.shared else "."
        name = cells.name(one.model)
        lines.append(Text(f"  {one.place}{mark} {name}: {cell.value} {cell.beside}".rstrip()))
    lines += [Text(f"  {printable(sentence)}") for sentence in ranking_sentences(ranking)]
    return Text("\n").join(lines)


_RANKED_CELLS: dict[str, Callable[[Interval], Cell]] = {
    "reward": cells.mean,
    "invalid_rate": cells.percent,
}


def _notes(summaries: Sequence[ModelSummary], *, human: bool, tested: bool) -> Text:
    notes = [
        "± is half the width of the 95 % t interval of a mean over the episodes that ended"
        " as a result."
    ]
    if tested:
        notes.append(
            "Models are compared world by world (paired t test, adjusted by Holm's method for"
            " all pairs of models); = marks a place that models share because they cannot be"
            " told apart. In brackets: 95 % intervals of differences, not adjusted."
        )
    if any(one.results == 1 for one in summaries):
        notes.append("±? one episode gives no interval.")
    notes.append(
        "The Crafter score with its 95 % interval grows with the number of episodes n: compare"
        " scores of equal n only."
    )
    notes.append("Invalid = unknown + no effect; asleep and malformed are counted apart.")
    if any(one.baseline for one in summaries):
        notes.append(
            "* a baseline on the same worlds with the same limits; ranked with no model."
        )
    if human:
        notes.append(HUMAN.note)
    return Text("\n".join(notes), style="dim")


def _troubles(summaries: Sequence[ModelSummary]) -> Text | None:
    lines: list[str] = []
    for one in summaries:
        for trouble in one.troubles:
            what = f"{trouble.count} of {one.started} episodes {_STATES[trouble.state]}"
            message = f"{cells.name(trouble.kind)}: {_short(trouble.message)}".rstrip(": ")
            lines.append(f"{cells.name(one.model)}: {what}: {message}")
        if one.unended > 0:
            lines.append(
                f"{cells.name(one.model)}: {one.unended} of {one.started} episodes without an"
                " ending; resume the run to end them"
            )
    return Text("\n".join(lines), style="yellow") if lines else None


def _short(message: str) -> str:
    shown = printable(message[: _LONGEST_MESSAGE + 1])
    return shown if len(shown) <= _LONGEST_MESSAGE else f"{shown[: _LONGEST_MESSAGE - 1]}…"
