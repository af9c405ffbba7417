"""Comparisons for the viewer: the report of `assay compare` as values.

The verdict is that of the primary metric and the default baseline. Any other choice is
exploratory: intervals are shown, and verdicts are not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from assay.errors import UsageError
from assay.judge.results import Comparison, Contrast
from assay.report.comparison.document import comparison_document
from assay.report.comparison.sentences import describe_sample
from assay.report.document import (
    Answers,
    Block,
    Cell,
    Document,
    Figures,
    Items,
    Paragraph,
    ReportTable,
    Section,
)
from assay.report.files import to_json_value
from assay.report.numbers import format_bounds, format_difference
from assay.report.viewer.episodes import command
from assay.report.viewer.library import Library

_JUDGING: Final = ("Answers", "Everybody against everybody")
"""Sections that consist of verdicts."""
_VERDICT: Final = "Verdict"
_MOST_PAIRS: Final = 2_000


@dataclass(frozen=True)
class ComparisonChoice:
    """What is compared."""

    names: tuple[str, ...]
    """Experiments or runs."""
    metric: str | None = None
    baseline: str | None = None
    seeds: str | None = None

    def words(self) -> list[str]:
        """Return the arguments of `assay compare`."""
        options = {"--baseline": self.baseline, "--metric": self.metric, "--seeds": self.seeds}
        given = [(name, value) for name, value in options.items() if value is not None]
        return [*self.names, *(word for pair in given for word in pair)]


@dataclass(frozen=True)
class Compared:
    """A comparison with its report."""

    comparison: Comparison
    document: Document
    reason: str | None
    """Why it is exploratory; None if it is not."""
    running: bool
    """Whether a run of it is in progress."""

    def section(self, title: str) -> Section | None:
        """Return a section by its title, without verdicts if it is exploratory."""
        for section in self.document.sections:
            if section.title == title and not (self.judges_nothing and title in _JUDGING):
                return section
        return None

    @property
    def judges_nothing(self) -> bool:
        """Whether no verdict may be shown."""
        return self.reason is not None or self.running


def compared(library: Library, choice: ComparisonChoice) -> Compared:
    """Compare, or return the result kept from an earlier request."""
    return library.keep(("compared", choice), lambda: _compare(library, choice))


def _compare(library: Library, choice: ComparisonChoice) -> Compared:
    plain = library.compare(choice.names)
    primary, baseline = plain.setup.primary, plain.baseline.id
    reasons = []
    if choice.metric not in (None, primary):
        reasons.append(f"the primary metric is {primary}")
    if choice.baseline not in (None, baseline, plain.baseline.name):
        reasons.append(f"the baseline of the comparison is {plain.baseline.name}")
    if choice.seeds is not None:
        reasons.append("only some worlds are compared")
    found = plain
    if reasons:
        found = library.compare(
            choice.names, metric=choice.metric, baseline=choice.baseline, seeds=choice.seeds
        )
    reason = "; ".join(reasons) or None
    runs = {facts.subject.run_id for facts in found.subjects}
    running = any(
        folder.record.id in runs and folder.holder() is not None
        for folder in library.open_runs()
    )
    return Compared(found, comparison_document(found), reason, running)


def comparison_page(library: Library, choice: ComparisonChoice) -> dict[str, Any]:
    """Return a comparison with all its sections, without figures."""
    if not choice.names:
        raise UsageError("name experiments or a run to compare")
    found = compared(library, choice)
    comparison, document = found.comparison, found.document
    silent = found.judges_nothing
    return {
        "title": document.title,
        "summary": summary(found),
        "exploratory": found.reason is not None,
        "exploratory_reason": found.reason,
        "running": found.running,
        "metrics": list(comparison.setup.metrics),
        "metric": comparison.setup.primary,
        "baseline": comparison.baseline.id,
        "command": command(library, "compare", *choice.words()),
        "subjects": [
            {
                "id": facts.id,
                "name": facts.name,
                "model": facts.subject.model,
                "run": facts.subject.run_id,
                "judged": facts.judged,
                "results": facts.results,
                "failures": facts.failures,
                "infrastructure": facts.infrastructure,
            }
            for facts in comparison.subjects
        ],
        "contrasts": [
            _contrast(comparison, contrast, silent=silent) for contrast in comparison.contrasts
        ],
        "sections": [
            {
                "title": section.title,
                "folded": section.folded,
                "figures": any(isinstance(block, Figures) for block in section.blocks),
                "blocks": [
                    block_values(block, silent=silent)
                    for block in section.blocks
                    if not isinstance(block, Figures)
                ],
            }
            for section in document.sections
            if found.section(section.title) is not None
        ],
        "origin": [list(pair) for pair in document.origin],
        "notes": list(comparison.notes),
    }


def summary(found: Compared) -> list[str]:
    """Return a sentence per candidate; an exploratory one has no verdict."""
    if not found.judges_nothing:
        return list(found.document.summary)
    return [_plain_sentence(found, contrast) for contrast in found.comparison.decisive]


def _plain_sentence(found: Compared, contrast: Contrast) -> str:
    name, metric = found.comparison.of(contrast.candidate).name, contrast.metric
    gap = contrast.difference
    # An interval of a run in progress would be another look at its data.
    ends = f" [{format_bounds(metric, gap)}]" if gap.known and not found.running else ""
    text = f"{name}: difference in {metric} {format_difference(metric, gap.point)}{ends}"
    return f"{text}, {describe_sample(contrast)}."


def _contrast(comparison: Comparison, contrast: Contrast, *, silent: bool) -> dict[str, Any]:
    rows = contrast.pairs[:_MOST_PAIRS] if contrast.metric == comparison.setup.primary else ()
    sides = [_episodes(comparison, key) for key in (contrast.baseline, contrast.candidate)]
    return {
        "metric": contrast.metric,
        "baseline": contrast.baseline,
        "candidate": contrast.candidate,
        "verdict": None if silent else contrast.verdict,
        "difference": to_json_value(contrast.difference),
        "paired": contrast.paired,
        "n": contrast.n_candidate,
        "pairs": [
            {
                "pair": row.pair,
                "baseline": row.baseline,
                "candidate": row.candidate,
                "difference": row.difference,
                "a": sides[0].get(row.pair),
                "b": sides[1].get(row.pair),
            }
            for row in rows
        ],
    }


def _episodes(comparison: Comparison, key: str) -> dict[str, str]:
    """Return the first episode of each world of an entry."""
    found: dict[str, str] = {}
    for trial in comparison.of(key).subject.trials:
        if trial.pair is not None:
            found.setdefault(trial.pair, trial.trial_id)
    return found


def block_values(block: Block, *, silent: bool = False) -> dict[str, Any]:
    """Return a block of a report; without verdicts if `silent`."""
    match block:
        case Paragraph(text, tone):
            return {"kind": "text", "tone": tone, "text": text}
        case Items(items, title, tone):
            return {"kind": "items", "tone": tone, "title": title, "items": list(items)}
        case Answers(items):
            return {"kind": "answers", "items": [answer._asdict() for answer in items]}
        case ReportTable():
            return _table(block, silent=silent)
    raise AssertionError("figures are requested one section at a time")


def _table(table: ReportTable, *, silent: bool) -> dict[str, Any]:
    places = [
        place
        for place, head in enumerate(table.heads)
        if not (silent and head.startswith(_VERDICT))
    ]
    return {
        "kind": "table",
        "caption": table.caption,
        "heads": [table.heads[place] for place in places],
        "rows": [[_cell(row[place]) for place in places] for row in table.rows],
        "note": table.note,
        "dim": sorted(table.dim),
    }


def _cell(cell: str | Cell) -> dict[str, str]:
    value, beside = (cell, "") if isinstance(cell, str) else cell
    return {"value": value, "beside": beside}


def section_figures(library: Library, choice: ComparisonChoice, title: str) -> dict[str, Any]:
    """Return the figures of one section as SVG."""

    def draw() -> dict[str, Any]:
        section = compared(library, choice).section(title)
        drawings = [
            drawing
            for block in (section.blocks if section else ())
            if isinstance(block, Figures)
            for drawing in block.draw()
        ]
        return {
            "figures": [
                {
                    "title": drawing.title,
                    "alt": drawing.alt,
                    "note": drawing.note,
                    "svg": drawing.linked_svg,
                    "table": None if drawing.table is None else block_values(drawing.table),
                }
                for drawing in drawings
            ]
        }

    return library.keep(("figures", choice, title), draw)


def home_verdict(library: Library, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict and the leaderboard of one run, or why there is none."""
    empty: dict[str, Any] = {"verdict": None, "verdict_reason": None, "leaderboard": None}
    if run["process"] is not None:
        reason = "The run is in progress: counts and means only."
        return {**empty, "verdict_reason": reason}
    try:
        found = compared(library, ComparisonChoice((run["id"],)))
    except UsageError as error:
        return {**empty, "verdict_reason": str(error)}
    board = found.section("Leaderboard")
    tables = [
        block for block in (board.blocks if board else ()) if isinstance(block, ReportTable)
    ]
    sentences = summary(found)
    alone = "There is nothing to compare: the run has one entry."
    decisive = found.comparison.decisive
    return {
        "verdict": {
            "sentence": sentences[0],
            "verdict": decisive[0].verdict,
            "all": sentences,
        }
        if sentences
        else None,
        "verdict_reason": None if sentences else alone,
        "leaderboard": block_values(tables[0]) if tables else None,
    }
