"""Report of a comparison, section by section."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from assay.judge.results import Comparison, Contrast, TaskRule
from assay.report.comparison import tables
from assay.report.comparison.sentences import (
    answer_questions,
    describe_details,
    describe_differences,
    describe_most_sensitive,
    describe_sample,
    task_restriction,
    verdict_word,
)
from assay.report.comparison.values import comparison_rows, comparison_values
from assay.report.document import (
    Answers,
    Block,
    Cell,
    Document,
    Figures,
    Paragraph,
    ReportTable,
    Row,
    Section,
    Tone,
    join_cell,
)
from assay.report.numbers import (
    DASH,
    format_p_value,
    format_signed_percent,
    format_value,
    level_text,
    mean_cell,
    rounding_reference,
    share_cell,
)
from assay.report.provenance import (
    comparison_configuration,
    provenance_lines,
    subject_sources,
    terminal_footer,
)

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

_FILE_ONLY_SECTIONS = ("Other metrics", "Versions", "Episodes")
"""Sections without information about the verdict."""
_UNFOLDED_SECTIONS = ("Leaderboard", "Answers")
"""Sections for every reader; the others are folded."""


_EFFECT_HEADS = ("Cohen's d", "Hedges' g", "Cliff's delta", "P(higher)", "Relative")


def comparison_document(comparison: Comparison) -> Document:
    """Build the report of a comparison, in reading order."""
    setup = comparison.setup
    first = list(dict.fromkeys(["achievements", setup.primary]))
    others = [metric for metric in setup.metrics if metric not in first]
    blocks: dict[str, Iterable[Block]] = {
        "Leaderboard": _leaderboard_table(comparison),
        "Answers": _answer_blocks(comparison),
        "Differences": _difference_tables(comparison),
        "Ranking": _ranking_tables(comparison),
        "Values": tables.value_tables(comparison, first),
        "Crafter score": tables.score_tables(comparison),
        "Instances": tables.instance_tables(comparison),
        "Endings": tables.endings_table(comparison),
        "Versions": tables.subjects_table(comparison),
        "Pair by pair": tables.pair_tables(comparison),
        "Episodes": tables.episode_tables(comparison),
        "Cost and quality": tables.cost_table(comparison),
        "Learning curves": tables.curves_table(comparison),
        "Other metrics": tables.value_tables(comparison, others),
        "All episodes together": tables.whole_subject_table(comparison),
    }
    subjects = [facts.subject for facts in comparison.subjects]
    return Document(
        title=_format_title(comparison),
        summary=[_summarize_contrast(comparison, contrast) for contrast in comparison.decisive],
        sections=[
            Section(
                title,
                [*block_list, Figures(partial(_draw_section, comparison, title))],
                in_terminal=title not in _FILE_ONLY_SECTIONS,
                folded=title not in _UNFOLDED_SECTIONS,
                closing=title == "Leaderboard",
            )
            for title, section_blocks in blocks.items()
            if (block_list := list(section_blocks))
        ],
        origin=provenance_lines(
            comparison_configuration(setup), subject_sources(subjects), setup.seed
        ),
        more=terminal_footer(setup.seed),
        values=lambda: comparison_values(comparison),
        rows=lambda: comparison_rows(comparison),
    )


def _draw_section(comparison: Comparison, section: str) -> "Iterable[Drawing]":
    # Importing the drawing modules takes a second, and only pages need them.
    from assay.report.comparison.figures import draw_section

    return draw_section(comparison, section)


def _format_title(comparison: Comparison) -> str:
    first = comparison.baseline.name
    others = [comparison.of(contrast.candidate).name for contrast in comparison.decisive]
    if len(others) == 1:
        return f"{others[0]} compared with {first}"
    return f"{first} compared with {len(others)} others"


def _summarize_contrast(comparison: Comparison, contrast: Contrast) -> str:
    name, metric = comparison.of(contrast.candidate).name, contrast.metric
    difference = join_cell(mean_cell(contrast.outcome, contrast.difference, signed=True))
    return (
        f"{name}: {verdict_word(contrast)}{task_restriction(contrast)}. Difference in {metric}"
        f" {difference}, {describe_sample(contrast)}."
    )


def _leaderboard_table(comparison: Comparison) -> Iterator[Block]:
    """Yield the leaderboard by the primary metric, the best first, unjudged subjects last."""
    metric, first = comparison.setup.primary, comparison.baseline
    sign = 1 if metric in comparison.setup.lower_is_better else -1
    contrasts = {contrast.candidate: contrast for contrast in comparison.decisive}
    places = (
        {standing.subject: standing for standing in comparison.standings.order}
        if comparison.standings
        else {}
    )
    rows: list[Row] = []
    order = sorted(
        comparison.subjects,
        key=lambda facts: (not facts.judged, sign * facts.metrics[metric].mean.point),
    )
    for facts in order:
        contrast, place = contrasts.get(facts.id), places.get(facts.id)
        cells = [Cell(DASH), Cell("baseline" if facts is first else "reference")]
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


def _answer_blocks(comparison: Comparison) -> Iterator[Block]:
    for contrast in comparison.decisive:
        yield Answers(answer_questions(comparison, contrast))
        if differing := [difference for difference in contrast.design if not difference.task]:
            yield Paragraph(
                f"Differences in settings: {describe_differences(differing)}.", Tone.NOTE
            )
        if remarks := "; ".join(_list_common_remarks(comparison, contrast)):
            yield Paragraph(f"Also recorded: {remarks}.", Tone.NOTE)
    for note in comparison.notes:
        yield Paragraph(note, Tone.NOTE)


def _list_common_remarks(comparison: Comparison, contrast: Contrast) -> Iterator[str]:
    """Yield author-defined keys on which both sides agree, or that only one side has."""
    both = [comparison.of(id) for id in (contrast.baseline, contrast.candidate)]
    for name in comparison.remarks:
        values = {facts.name: facts.subject.remarks.get(name) for facts in both}
        known = {name: value for name, value in values.items() if value is not None}
        if len(set(known.values())) == 1:
            whose = "" if len(known) == 2 else f" ({', '.join(known)})"
            yield f"{name} {next(iter(known.values()))}{whose}"


def _difference_tables(comparison: Comparison) -> Iterator[Block]:
    level = level_text(comparison.setup.level)
    candidates = list(dict.fromkeys(contrast.candidate for contrast in comparison.contrasts))
    adjusted = _describe_adjustment(comparison, len(candidates))
    for candidate in candidates:
        name = comparison.of(candidate).name
        contrasts = [
            contrast for contrast in comparison.contrasts if contrast.candidate == candidate
        ]
        about = "" if all(contrast.promised for contrast in contrasts) else "about "
        yield ReportTable(
            f"{name} against {comparison.baseline.name}, by metric",
            ["Metric", "Difference", "Verdict", comparison.baseline.name, name, "p", "n"],
            [[contrast.metric, *_difference_cells(contrast)] for contrast in contrasts],
            f"In brackets: {about}{level} intervals. {adjusted}",
        )
        for contrast in contrasts:
            if contrast.metric == comparison.setup.primary:
                yield Paragraph(describe_details(comparison, contrast))
        effect_rows: list[Row] = [
            [contrast.metric, *_effect_cells(contrast)]
            for contrast in contrasts
            if contrast.effects
        ]
        if effect_rows:
            yield ReportTable(
                f"Effect sizes of {name}",
                ["Metric", "Tested", *_EFFECT_HEADS],
                effect_rows,
                "Tested: the difference divided by the standard deviation used in the test, of"
                " the differences in pairs or of trials; a larger value needs fewer trials."
                f" P(higher): probability that a trial of {name} has the higher value (ties"
                " count half). Relative: the difference divided by the baseline's mean."
                f"{describe_most_sensitive(comparison, contrasts)}",
            )


def _describe_adjustment(comparison: Comparison, candidates: int) -> str:
    test = "p: t test of the difference; for proportions, McNemar's or Fisher's exact test"
    if candidates < 2:
        return f"{test}."
    how = {"holm": "Holm", "bh": "Benjamini and Hochberg"}[comparison.setup.correction.value]
    first, family = comparison.setup.primary, comparison.family
    return (
        f"{test}; adjusted by {how} for {family} comparisons in {first}, for {candidates} in"
        " each other metric."
    )


def _difference_cells(contrast: Contrast) -> list[Cell]:
    metric, like = contrast.outcome, rounding_reference(contrast.difference)
    n = f"{contrast.n_baseline:,}"
    if not contrast.paired:
        n = f"{n} and {contrast.n_candidate:,}, not paired"
    if contrast.units.rule is not TaskRule.WORLDS:
        n += f", {contrast.units.tasks:,} tasks"
    p = DASH
    if contrast.look is None and contrast.tests is not None:
        p = format_p_value(contrast.tests.p_adjusted)
    return [
        mean_cell(metric, contrast.difference, signed=True),
        Cell(verdict_word(contrast)),
        Cell(format_value(metric, contrast.mean_baseline.point, like)),
        Cell(format_value(metric, contrast.mean_candidate.point, like)),
        Cell(p),
        Cell(n if contrast.look is None else f"{contrast.look.pairs:,}, by looks"),
    ]


def _effect_cells(contrast: Contrast) -> list[Cell]:
    effects = contrast.effects
    assert effects is not None
    relative = Cell(DASH)
    if contrast.relative is not None:
        point, low, high = (format_signed_percent(share, 0) for share in contrast.relative)
        relative = Cell(f"{point}%", f"[{low}, {high}]" if contrast.relative.known else "")
    sizes = (contrast.standardised, effects.d, effects.g, effects.delta)
    return [
        *(mean_cell("", size, signed=True) for size in sizes),
        share_cell(effects.improvement),
        relative,
    ]


def _ranking_tables(comparison: Comparison) -> Iterator[Block]:
    standings, metric = comparison.standings, comparison.setup.primary
    if standings is None:
        return
    yield ReportTable(
        f"Ranking by {metric}",
        ["Name", "Place", "Mean", "Shrunken", "Group"],
        [
            [
                comparison.of(standing.subject).name,
                f"{standing.rank}{'=' if standing.shared else ''}",
                mean_cell(metric, comparison.of(standing.subject).metrics[metric].mean),
                format_value(
                    metric,
                    standing.shrunken,
                    rounding_reference(comparison.of(standing.subject).metrics[metric].mean),
                ),
                standing.groups,
            ]
            for standing in standings.order
        ],
        "A place is 1 plus the number of entries that are significantly better; = marks a"
        " shared place. Entries that share a letter do not differ significantly. Shrunken: the"
        " mean after shrinkage for the selection of the best of several.",
    )
    yield ReportTable(
        f"All pairs in {metric}",
        ["Pair", "Difference", "Verdict", "p", "n"],
        [
            [_format_pair(comparison, contrast), *cells[:2], *cells[4:]]
            for contrast in standings.pairs
            for cells in [_difference_cells(contrast)]
        ],
        f"p values are adjusted for all {len(standings.pairs)} pairs, also in the answers.",
    )


def _format_pair(comparison: Comparison, contrast: Contrast) -> str:
    first, second = contrast.candidate, contrast.baseline
    return f"{comparison.of(first).name} against {comparison.of(second).name}"
