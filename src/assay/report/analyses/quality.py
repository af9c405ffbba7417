"""The report of how good traces are to learn from."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay._util.text import counted
from assay.analyses.quality import QualityAnalysis, TraceQuality
from assay.report.analyses.common import INTERVALS, build, percent, replay_command
from assay.report.document import Document, Figures, Items, ReportTable, Row, Section
from assay.report.numbers import mean_cell

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

__all__ = ["quality_document"]

_SHOWN = 3
"""The best and the worst in a terminal."""
_LISTED = 50
_WORDS = {
    "waste": "wasted actions",
    "loops": "loops",
    "unreadable": "replies without use",
    "progress": "little progress",
}


def quality_document(found: QualityAnalysis) -> Document:
    """Scores by model, what lowers them, and the best and the worst traces."""
    models = ReportTable(
        "Quality by model, from 0 to 1",
        ["Model", "Score", "Progress", "Waste", "Loops", "Unreadable", "Cut", "Traces"],
        [
            [
                model.group,
                mean_cell("", model.score),
                *map(
                    percent,
                    (
                        model.progress,
                        model.waste,
                        model.loops,
                        model.unreadable,
                        model.truncated,
                    ),
                ),
                f"{model.n:,}",
            ]
            for model in found.models
        ],
        "Score: progress x (1 - waste) x (1 - loops) x (1 - unreadable), averaged. Progress:"
        " achievements / 22. Waste: actions unknown, without effect or ignored asleep. Loops:"
        " steps that repeat the same 2 to 8 actions and lead nowhere. Unreadable: replies that"
        f" were malformed or cut at the token limit; Cut: the latter alone. {INTERVALS}",
    )
    best, worst = found.traces[:_SHOWN], found.traces[_SHOWN:][-_SHOWN:]
    sections = [
        Section("Quality by model", [models, Figures(lambda: _drawings(found))]),
        Section(
            "The best and the worst",
            [
                Items([_line(found, trace) for trace in traces], title)
                for title, traces in (("The best", best), ("The worst", worst))
                if traces
            ],
        ),
        Section("Near duplicates", list(_duplicates(found))),
        Section(
            "All traces",
            [_table(found)],
            in_terminal=False,
            folded=True,
        ),
    ]
    return build(
        "quality",
        f"Quality of {counted(len(found.traces), 'trace')}",
        [_finding(found), *_ends(found)],
        sections,
        found,
        [_columns(found, trace) for trace in found.traces],
    )


def _finding(found: QualityAnalysis) -> str:
    order = sorted(found.models, key=lambda model: -model.score.point)
    best = order[0]
    text = f"The traces of {best.group} score highest, {best.score.point:.2f} on average"
    text += f", those of {order[-1].group} {order[-1].score.point:.2f}" * (len(order) > 1)
    lost = {
        name: sum(getattr(trace, name) for trace in found.traces) / len(found.traces)
        for name in ("waste", "loops", "unreadable")
    }
    worst = max(lost, key=lambda name: lost[name])
    if lost[worst]:
        text += f"; what spoils most is {_WORDS[worst]} ({percent(lost[worst])})"
    n = len(found.duplicates)
    return f"{text}. {n:,} pairs are near duplicates." if n else f"{text}."


def _ends(found: QualityAnalysis) -> Iterator[str]:
    """The best and the worst trace, each with the command that replays it."""
    ends = {"The best": found.traces[0], "The worst": found.traces[-1]}
    for name, trace in ends.items() if len(found.traces) > 1 else ():
        command = replay_command(trace.session_id, found.basis)
        yield f"{name}, {trace.score:.2f}: {command}"


def _line(found: QualityAnalysis, trace: TraceQuality) -> str:
    return (
        f"{trace.score:.2f}  {found.groups[trace.session_id]} in"
        f" {found.worlds[trace.session_id]}: {trace.reasons}."
        f" {replay_command(trace.session_id, found.basis)}"
    )


def _table(found: QualityAnalysis) -> ReportTable:
    rows: list[Row] = [
        [
            trace.session_id[:10],
            f"{trace.score:.2f}",
            found.groups[trace.session_id],
            found.worlds[trace.session_id],
            trace.reasons,
        ]
        for trace in found.traces[:_LISTED]
    ]
    caption = "All traces" if len(found.traces) <= _LISTED else f"The best {_LISTED} traces"
    return ReportTable(caption, ["Session", "Score", "Model", "World", "Why"], rows)


def _duplicates(found: QualityAnalysis) -> Iterator[ReportTable]:
    if found.duplicates:
        yield ReportTable(
            "Traces of one world that are nearly the same",
            ["World", "Keep", "Drop", "Alike"],
            [
                [str(pair.world), pair.first[:10], pair.second[:10], percent(pair.alike)]
                for pair in found.duplicates[:_LISTED]
            ],
            "Alike: runs of five actions that both have, over those that either has.",
        )


def _columns(found: QualityAnalysis, trace: TraceQuality) -> dict[str, Any]:
    return {
        "session_id": trace.session_id,
        "model": found.groups[trace.session_id],
        "world": found.worlds[trace.session_id],
        "score": trace.score,
        "progress": trace.progress,
        "waste": trace.waste,
        "loops": trace.loops,
        "unreadable": trace.unreadable,
        "truncated": trace.truncated,
        "why": trace.reasons,
    }


def _drawings(found: QualityAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.distributions import box_plot

    groups: dict[str, list[float]] = {}
    for trace in found.traces:
        groups.setdefault(found.groups[trace.session_id], []).append(trace.score)
    yield box_plot(groups, "quality score of a trace (0 to 1)")
