"""What was found about training runs, for a terminal or as plain text.

Names of runs and metrics are untrusted and reach the terminal as text, never as markup. Every
number stands beside the words that say what it is.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from assay._util.text import printable
from assay.curves.analysis import Analysis
from assay.curves.gather import Gathered, Unusable
from assay.curves.settings import describe_summary
from assay.curves.variance import (
    WHY_THE_RULE_MISLEADS,
    SummaryVariance,
    VarianceSettings,
)
from assay.report import cells
from assay.stats.intervals import Interval
from assay.stats.planning import Needed

__all__ = ["AnalysisReport", "VarianceReport"]

_DASH = "-"


@dataclass(frozen=True, slots=True, eq=False)
class VarianceReport:
    """The spread of two summaries, and how many runs are enough."""

    gathered: Gathered
    found: Sequence[SummaryVariance]
    settings: VarianceSettings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, then the sentences."""
        yield from _safe(self._parts(), options)

    def _parts(self) -> Iterator[RenderableType]:
        runs, share = len(self.gathered.runs), f"{100 * self.settings.threshold:.4g} %"
        metric = cells.name(self.gathered.metric)
        yield Text(f"{metric}: {runs} runs, threshold {share}", style="bold")
        table = _table("", *(one.name for one in self.found))
        for label, texts in self._rows(runs, share):
            table.add_row(Text(label), *map(Text, texts))
        yield table
        yield Text(WHY_THE_RULE_MISLEADS)
        taken = "; ".join(describe_summary(one.summary) for one in self.found)
        yield Text(
            f"In brackets: 95 % ranges, from how little {runs} runs say about the spread. "
            f"{taken}."
        )
        notes = [one.note for one in self.found if one.note]
        yield from _sentences([*notes, *self.gathered.notes])
        yield from _left_out(self.gathered.unusable)

    def _rows(self, runs: int, share: str) -> Iterator[tuple[str, list[str]]]:
        found, settings = self.found, self.settings
        yield "mean", [_number(one.mean) for one in found]
        yield "standard deviation", [_number(one.sd) for one in found]
        yield (
            f"plain rule: minimum N, sd / mean below {share}",
            ["never" if one.rule_n is None else str(one.rule_n) for one in found],
        )
        yield (
            f"relative standard error at N = {runs}",
            [_share(one.error) for one in found],
        )
        yield (
            f"N for a standard error below {share}",
            [_needed(one.precision) for one in found],
        )
        power = f"power {100 * settings.power:.4g} %"
        yield (
            f"N per arm, difference of {share}, {power}",
            [_needed(one.two_arms) for one in found],
        )
        yield (
            f"pairs for that, if seeds correlate at {settings.correlation:g}",
            [_needed(one.paired) for one in found],
        )


@dataclass(frozen=True, slots=True, eq=False)
class AnalysisReport:
    """Control against candidate: the runs, the difference, and how sure it is."""

    found: Analysis
    deviations: Sequence[str] | None = None
    """From the plan; None where there is none."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The answer first, then what it rests on."""
        yield from _safe(self._parts(), options)

    def _parts(self) -> Iterator[RenderableType]:
        found, settings = self.found, self.found.settings
        yield Text(
            f"{cells.name(settings.metric)}: {describe_summary(settings.summary)}",
            style="bold",
        )
        yield Text(found.sentence)
        yield _pair_table(found) if found.paired else _run_table(found)
        yield _result_table(found)
        yield from _sentences(self._sentences())
        yield from _left_out(found.design.unusable)
        yield from self._plan()
        method = "Student's t" if str(settings.method) in ("auto", "t") else settings.method
        yield Text(
            f"Interval of the difference by {method}, {settings.side}, alpha "
            f"{settings.alpha:g}; {settings.n_resamples:,} resamples, generator seed "
            f"{settings.seed}.",
            style="dim",
        )

    def _sentences(self) -> Iterator[str]:
        found = self.found
        if found.pairing is not None:
            yield found.pairing.sentence
        if not found.relative.known and found.relative_note:
            yield found.relative_note
        yield from found.design.warnings
        yield from found.notes
        yield from found.design.notes

    def _plan(self) -> Iterator[RenderableType]:
        if self.deviations is None:
            return
        if not self.deviations:
            yield Text("The analysis kept to its plan.")
            return
        lines = [f"  {printable(one)}" for one in self.deviations]
        yield Text("\n".join([f"Deviations from the plan: {len(lines)}", *lines]))


def _safe(parts: Iterator[RenderableType], options: ConsoleOptions) -> RenderResult:
    """The parts with an empty line between them, and plain letters where others fail."""
    for at, part in enumerate(parts):
        if at:
            yield Text()
        if isinstance(part, Text) and options.ascii_only:
            part = Text(cells.only_ascii(part.plain), style=part.style)
        yield part


def _table(first: str, *heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(Text(first), overflow="fold")
    for head in heads:
        table.add_column(Text(head), justify="right", overflow="fold")
    return table


def _pair_table(found: Analysis) -> Table:
    table = _table("pair", "seed", "control", "value", "candidate", "value", "difference")
    design = found.design
    values = zip(found.control_R.tolist(), found.candidate_R.tolist(), strict=True)
    for at, (a, b) in enumerate(values):
        seed = design.seeds[at]
        texts = (
            str(at + 1),
            _DASH if seed is None else str(seed),
            cells.name(design.control[at].name),
            _number(a),
            cells.name(design.candidate[at].name),
            _number(b),
            _number(b - a, "+"),
        )
        table.add_row(*map(Text, texts))
    return table


def _run_table(found: Analysis) -> Table:
    table = _table("arm", "run", "seed", "value")
    design = found.design
    for arm, runs, values in (
        ("control", design.control, found.control_R),
        ("candidate", design.candidate, found.candidate_R),
    ):
        for one, value in zip(runs, values.tolist(), strict=True):
            seed = _DASH if one.run.seed is None else str(one.run.seed)
            table.add_row(*map(Text, (arm, cells.name(one.name), seed, _number(value))))
    return table


def _result_table(found: Analysis) -> Table:
    level = f"{100 * found.settings.level:.4g} % interval"
    table = _table("result", "value", level)
    for name, value, beside in _results(found):
        table.add_row(*map(Text, (name, value, beside)))
    return table


def _results(found: Analysis) -> Iterator[tuple[str, str, str]]:
    arms = (("control", found.control_R), ("candidate", found.candidate_R))
    for (name, values), mean in zip(arms, (found.control, found.candidate), strict=True):
        yield f"mean of {name} (n = {len(values)})", _number(mean.point), _bounds(mean)
    yield (
        "difference, candidate - control",
        _number(found.difference.point, "+"),
        _bounds(found.difference),
    )
    percent = Interval(*(100 * value for value in found.relative))
    yield "difference in % of the control", _number(percent.point, "+"), _bounds(percent)
    for test in found.tests:
        words = "exact p" if test.exact else "p"
        yield f"{words}, {test.name}", _p_value(test.p_value), test.note
    for name, interval in found.effects:
        yield name, _number(interval.point), _bounds(interval)
    if found.pairing is not None:
        correlation = found.pairing.correlation
        yield "seed correlation", _number(correlation.point), _bounds(correlation)
        yield "variance saved by pairing", f"{100 * found.pairing.saved:.0f} %", ""
    for name, shape in found.normality:
        shown = "shown, decides nothing"
        yield f"Shapiro-Wilk p of {name}", _p_value(shape.p_value), shown
        yield f"skewness of {name}", _number(shape.skewness), shown
    yield from _planning(found)


def _planning(found: Analysis) -> Iterator[tuple[str, str, str]]:
    plan = found.planning
    if plan is None:
        return
    unit = "pairs" if found.paired else "runs per arm"
    power = f"{100 * plan.power:.4g} %"
    low, high = (
        _DASH if end is None else str(end) for end in (plan.needed.low, plan.needed.high)
    )
    yield (
        f"{unit} to find a difference of {plan.target:g} with power {power}",
        str(plan.needed.trials),
        f"{low} to {high}",
    )
    yield f"smallest difference found with power {power}", _number(plan.detectable), ""
    yield f"power for a difference of {plan.target:g}", f"{100 * plan.achieved:.0f} %", ""


def _sentences(texts: Sequence[str] | Iterator[str]) -> Iterator[Text]:
    lines = [printable(text) for text in texts]
    if lines:
        yield Text("\n".join(lines))


def _left_out(unusable: Sequence[Unusable]) -> Iterator[Text]:
    if unusable:
        lines = [f"  {printable(one.name)}: {printable(one.reason)}" for one in unusable]
        yield Text("\n".join([f"Left out: {len(unusable)} runs", *lines]))


def _number(value: float, sign: str = "") -> str:
    if math.isnan(value):
        return _DASH
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    # Adding zero takes the sign from a zero.
    return f"{value + 0.0:{sign}.4g}"


def _p_value(value: float) -> str:
    if math.isnan(value):
        return _DASH
    return "< 0.0001" if value < 0.0001 else f"{value:.3g}"


def _bounds(interval: Interval) -> str:
    if not interval.known:
        return "not known"
    return f"{_number(interval.low)} to {_number(interval.high)}"


def _share(interval: Interval) -> str:
    if math.isnan(interval.point):
        return _DASH
    low, high = (f"{100 * value:.3g}" for value in interval[1:])
    beside = f"{low} to {high} %" if math.isfinite(interval.high) else f"{low} % or more"
    return f"{100 * interval.point:.3g} % ({beside})"


def _needed(needed: Needed | None) -> str:
    if needed is None:
        return _DASH
    if needed.low is None:
        return str(needed.trials)
    high = "no limit" if needed.high is None else f"{needed.high:,}"
    return f"{needed.trials:,} ({needed.low:,} to {high})"
