"""Report of a comparison, section by section."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from assay.judge.results import Comparison, Contrast, TaskRule
from assay.report.comparison import tables
from assay.report.comparison.sentences import (
    answers,
    compared_words,
    detail_words,
    on_these_tasks,
    sample_words,
    sensitive_words,
    verdict_word,
)
from assay.report.comparison.values import comparison_rows, comparison_values
from assay.report.document import (
    Answers,
    Block,
    Cell,
    Document,
    Figures,
    ReportTable,
    Row,
    Section,
    Tone,
    Words,
    joined,
)
from assay.report.numbers import (
    DASH,
    digits_like,
    level_text,
    mean_cell,
    p_number,
    share_cell,
    signed_percent,
    value,
)
from assay.report.provenance import configuration, made_by, more_in_files, subject_sources

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

_LEFT_TO_FILES = ("Other metrics", "Versions", "Episodes")
"""Sections without information about the verdict."""
_FIRST = ("Leaderboard", "Answers")
"""Sections for every reader; the others are folded."""


_SIZES = ("Cohen's d", "Hedges' g", "Cliff's delta", "P(higher)", "Relative")


def comparison_document(comparison: Comparison) -> Document:
    """Build the report of a comparison, in reading order."""
    setup = comparison.setup
    first = list(dict.fromkeys(["achievements", setup.primary]))
    others = [metric for metric in setup.metrics if metric not in first]
    blocks: dict[str, Iterable[Block]] = {
        "Leaderboard": _leaderboard(comparison),
        "Answers": _answers(comparison),
        "Differences": _differences(comparison),
        "Everybody against everybody": _standings(comparison),
        "Values": tables.values(comparison, first),
        "Crafter score": tables.scores(comparison),
        "Instances": tables.instances(comparison),
        "Endings": tables.ends(comparison),
        "Versions": tables.versions(comparison),
        "Pair by pair": tables.pairs(comparison),
        "Episodes": tables.episodes(comparison),
        "Cost beside quality": tables.cost(comparison),
        "Learning curves": tables.curves(comparison),
        "Other metrics": tables.values(comparison, others),
        "All episodes together": tables.whole(comparison),
    }
    subjects = [facts.subject for facts in comparison.subjects]
    return Document(
        title=_title(comparison),
        summary=[_summary(comparison, contrast) for contrast in comparison.decisive],
        sections=[
            Section(
                title,
                [*shown, Figures(partial(_drawings, comparison, title))],
                in_terminal=title not in _LEFT_TO_FILES,
                folded=title not in _FIRST,
                closing=title == "Leaderboard",
            )
            for title, made in blocks.items()
            if (shown := list(made))
        ],
        origin=made_by(configuration(setup), subject_sources(subjects), setup.seed),
        more=more_in_files(setup.seed),
        values=lambda: comparison_values(comparison),
        rows=lambda: comparison_rows(comparison),
    )


def _drawings(comparison: Comparison, section: str) -> "Iterable[Drawing]":
    # Importing the drawing modules takes a second, and only pages need them.
    from assay.report.comparison.figures import drawings

    return drawings(comparison, section)


def _title(comparison: Comparison) -> str:
    first = comparison.baseline.name
    others = [comparison.of(contrast.candidate).name for contrast in comparison.decisive]
    if len(others) == 1:
        return f"{others[0]} compared with {first}"
    return f"{first} compared with {len(others)} others"


def _summary(comparison: Comparison, contrast: Contrast) -> str:
    name, metric = comparison.of(contrast.candidate).name, contrast.metric
    difference = joined(mean_cell(metric, contrast.difference, signed=True))
    return (
        f"{name}: {verdict_word(contrast)}{on_these_tasks(contrast)}. Difference in {metric}"
        f" {difference}, {sample_words(contrast)}."
    )


def _leaderboard(comparison: Comparison) -> Iterator[Block]:
    """Yield the leaderboard by the primary metric, the best first, unjudged subjects last."""
    metric, first = comparison.setup.primary, comparison.baseline
    sign = 1 if metric in comparison.setup.lower_is_better else -1
    contrasts = {contrast.candidate: contrast for contrast in comparison.decisive}
    places = (
        {one.subject: one for one in comparison.standings.order} if comparison.standings else {}
    )
    rows: list[Row] = []
    order = sorted(
        comparison.subjects,
        key=lambda facts: (not facts.judged, sign * facts.metrics[metric].mean.point),
    )
    for facts in order:
        contrast, place = contrasts.get(facts.id), places.get(facts.id)
        cells = [Cell(DASH), Cell("compared with" if facts is first else "baseline")]
        if contrast is not None:
            cells = _difference_cells(contrast)[:2]
        rank = (
            []
            if not places
            else [DASH if place is None else f"{place.rank}{'=' * place.shared}"]
        )
        numbers = facts.metrics[metric]
        rows.append(
            [facts.name, *cells, *rank, mean_cell(metric, numbers.mean), f"{numbers.n:,}"]
        )
    heads = ["Difference", "Verdict", *(["Place"] if places else []), f"Mean {metric}", "n"]
    yield ReportTable(
        f"Leaderboard by {metric}",
        ["Name", *heads],
        rows,
        f"Differences are from {first.name}; in brackets: about"
        f" {level_text(comparison.setup.level)} intervals.",
        [place for place, facts in enumerate(order) if not facts.judged],
    )


def _answers(comparison: Comparison) -> Iterator[Block]:
    for contrast in comparison.decisive:
        yield Answers(answers(comparison, contrast))
        if differing := [one for one in contrast.design if not one.task]:
            yield Words(f"What differs: {compared_words(differing)}.", Tone.NOTE)
        if remarks := "; ".join(_other_remarks(comparison, contrast)):
            yield Words(f"The file also says: {remarks}.", Tone.NOTE)
    for note in comparison.notes:
        yield Words(note, Tone.NOTE)


def _other_remarks(comparison: Comparison, contrast: Contrast) -> Iterator[str]:
    """Yield author-defined keys with one value; `compared_words` has those that differ."""
    both = [comparison.of(id) for id in (contrast.baseline, contrast.candidate)]
    for name in comparison.remarks:
        said = {facts.name: facts.subject.remarks.get(name) for facts in both}
        known = {who: value for who, value in said.items() if value is not None}
        if len(set(known.values())) == 1:
            whose = "" if len(known) == 2 else f" ({', '.join(known)})"
            yield f"{name} {next(iter(known.values()))}{whose}"


def _differences(comparison: Comparison) -> Iterator[Block]:
    level = level_text(comparison.setup.level)
    candidates = list(dict.fromkeys(contrast.candidate for contrast in comparison.contrasts))
    adjusted = _adjusted(comparison, len(candidates))
    for candidate in candidates:
        name = comparison.of(candidate).name
        own = [contrast for contrast in comparison.contrasts if contrast.candidate == candidate]
        yield ReportTable(
            f"{name} against {comparison.baseline.name}, metric by metric",
            ["Metric", "Difference", "Verdict", comparison.baseline.name, name, "p", "n"],
            [[contrast.metric, *_difference_cells(contrast)] for contrast in own],
            f"In brackets: {'' if all(one.promised for one in own) else 'about '}{level}"
            f" intervals. {adjusted}",
        )
        for contrast in own:
            if contrast.metric == comparison.setup.primary:
                yield Words(detail_words(comparison, contrast))
        sized: list[Row] = [
            [contrast.metric, *_effect_cells(contrast)] for contrast in own if contrast.effects
        ]
        if sized:
            yield ReportTable(
                f"Sizes of the differences of {name}, without a unit",
                ["Metric", "Tested", *_SIZES],
                sized,
                "Tested: the difference in standard deviations of what the test sees, of a"
                " pair's difference or of a trial; the larger, the fewer trials it takes."
                f" P(higher): how often a trial of {name} has the higher value, ties counting"
                " half."
                " Relative: the difference over the mean of the baseline."
                f"{sensitive_words(comparison, own)}",
            )


def _adjusted(comparison: Comparison, candidates: int) -> str:
    tested = "p: t test of the difference, of shares McNemar's or Fisher's exact test"
    if candidates < 2:
        return f"{tested}."
    how = {"holm": "Holm", "bh": "Benjamini and Hochberg"}[comparison.setup.correction.value]
    first, family = comparison.setup.primary, comparison.family
    return (
        f"{tested}; adjusted by {how} for {family} comparisons in {first}, for {candidates} in"
        " each other metric."
    )


def _difference_cells(contrast: Contrast) -> list[Cell]:
    metric, like = contrast.metric, digits_like(contrast.difference)
    n = f"{contrast.n_baseline:,}"
    if not contrast.paired:
        n = f"{n} and {contrast.n_candidate:,}, not paired"
    if contrast.units.rule is not TaskRule.WORLDS:
        n += f", {contrast.units.tasks:,} tasks"
    p = DASH
    if contrast.look is None and contrast.tests is not None:
        p = p_number(contrast.tests.p_adjusted)
    return [
        mean_cell(metric, contrast.difference, signed=True),
        Cell(verdict_word(contrast)),
        Cell(value(metric, contrast.mean_baseline.point, like)),
        Cell(value(metric, contrast.mean_candidate.point, like)),
        Cell(p),
        Cell(n if contrast.look is None else f"{contrast.look.pairs:,}, by looks"),
    ]


def _effect_cells(contrast: Contrast) -> list[Cell]:
    effects = contrast.effects
    assert effects is not None
    relative = Cell(DASH)
    if contrast.relative is not None:
        point, low, high = (signed_percent(share, 0) for share in contrast.relative)
        relative = Cell(f"{point}%", f"[{low}, {high}]" if contrast.relative.known else "")
    sizes = (contrast.standardised, effects.d, effects.g, effects.delta)
    return [
        *(mean_cell("", size, signed=True) for size in sizes),
        share_cell(effects.improvement),
        relative,
    ]


def _standings(comparison: Comparison) -> Iterator[Block]:
    standings, metric = comparison.standings, comparison.setup.primary
    if standings is None:
        return
    yield ReportTable(
        f"Order by {metric}",
        ["Name", "Place", "Mean", "Shrunken", "Group"],
        [
            [
                comparison.of(standing.subject).name,
                f"{standing.rank}{'=' if standing.shared else ''}",
                mean_cell(metric, comparison.of(standing.subject).metrics[metric].mean),
                value(
                    metric,
                    standing.shrunken,
                    digits_like(comparison.of(standing.subject).metrics[metric].mean),
                ),
                standing.groups,
            ]
            for standing in standings.order
        ],
        "A place is 1 plus the number of others that are shown to be better; = marks a shared"
        " place. Those with a letter in common cannot be told apart. Shrunken: the mean without"
        " the luck with which the best of several is chosen.",
    )
    yield ReportTable(
        f"All pairs in {metric}",
        ["Pair", "Difference", "Verdict", "p", "n"],
        [
            [_versus(comparison, contrast), *cells[:2], *cells[4:]]
            for contrast in standings.pairs
            for cells in [_difference_cells(contrast)]
        ],
        f"p values are adjusted for all {len(standings.pairs)} pairs, here and in the answers.",
    )


def _versus(comparison: Comparison, contrast: Contrast) -> str:
    first, second = contrast.candidate, contrast.baseline
    return f"{comparison.of(first).name} against {comparison.of(second).name}"
