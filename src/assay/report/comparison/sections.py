"""The report of a comparison, section by section, as words and tables."""

from collections.abc import Iterator

from assay.judge import Comparison, Contrast, TaskRule
from assay.report.cells import DASH, Cell
from assay.report.comparison.document import Answers, Block, Document, Section, Sheet, Words
from assay.report.comparison.numbers import (
    digits_like,
    level_text,
    mean_cell,
    p_text,
    share_cell,
    value,
)
from assay.report.comparison.origin import made_by
from assay.report.comparison.sheets import (
    cost_sheets,
    curves_sheets,
    instances_sheets,
    pairs_sheets,
    scores_sheets,
    values_sheets,
    versions_sheet,
    whole_sheets,
)
from assay.report.comparison.words import answers, on_these_tasks, sample_words, verdict_word

__all__ = ["as_document"]


def as_document(comparison: Comparison) -> Document:
    """Everything a comparison found, in the order it is read."""
    first = list(dict.fromkeys(["achievements", comparison.setup.primary]))
    others = [metric for metric in comparison.setup.metrics if metric not in first]
    sections = [
        Section("answers", "Answers", [*_answers(comparison)]),
        Section("differences", "Differences", [*_differences(comparison)]),
        Section("standings", "Everybody against everybody", [*_standings(comparison)]),
        Section("values", "Values", [*values_sheets(comparison, first)]),
        Section("score", "Crafter score", [*scores_sheets(comparison)]),
        Section("instances", "Instances", [*instances_sheets(comparison)]),
        Section("origins", "Versions", [versions_sheet(comparison)]),
        Section("pairs", "Pair by pair", [*pairs_sheets(comparison)]),
        Section("cost", "Cost beside quality", [*cost_sheets(comparison)]),
        Section("curves", "Learning curves", [*curves_sheets(comparison)]),
        Section("metrics", "Other metrics", [*values_sheets(comparison, others)]),
        Section("whole", "Whole subjects", [*whole_sheets(comparison)]),
    ]
    return Document(
        title=_title(comparison),
        summary=[_summary(comparison, one) for one in comparison.decisive],
        sections=[section for section in sections if section.blocks],
        made=made_by(comparison.setup, [one.subject for one in comparison.subjects]),
    )


def _title(comparison: Comparison) -> str:
    first = comparison.baseline.name
    others = [comparison.of(one.candidate).name for one in comparison.decisive]
    if len(others) == 1:
        return f"{others[0]} compared with {first}"
    return f"{len(others)} candidates compared with {first}"


def _summary(comparison: Comparison, contrast: Contrast) -> str:
    name = comparison.of(contrast.candidate).name
    word = verdict_word(contrast) + on_these_tasks(contrast)
    ends = mean_cell(contrast.metric, contrast.difference, signed=True)
    return (
        f"{name}: {word}. Difference in {contrast.metric} {ends.value} {ends.beside},"
        f" {sample_words(contrast)}."
    )


def _answers(comparison: Comparison) -> Iterator[Block]:
    for one in comparison.decisive:
        yield Answers(answers(comparison, one))
    for note in comparison.notes:
        yield Words(note)


def _differences(comparison: Comparison) -> Iterator[Block]:
    level = level_text(comparison.setup.level)
    candidates = list(dict.fromkeys(one.candidate for one in comparison.contrasts))
    adjusted = _adjusted(comparison, len(candidates))
    for candidate in candidates:
        name = comparison.of(candidate).name
        own = [one for one in comparison.contrasts if one.candidate == candidate]
        yield Sheet(
            f"{name} against {comparison.baseline.name}, metric by metric",
            ["Metric", "Baseline", "Candidate", "Difference", "p", "Verdict", "n"],
            [(one.metric, _difference_cells(one)) for one in own],
            f"In brackets: {level} intervals. {adjusted}",
        )
        sized = [one for one in own if one.effects is not None]
        if sized:
            yield Sheet(
                f"Sizes of the differences of {name}, without a unit",
                ["Metric", "Cohen's d", "Hedges' g", "Cliff's delta", "P(higher)", "Relative"],
                [(one.metric, _effect_cells(one)) for one in sized],
                "P(higher): how often a trial of the candidate has the higher value, ties"
                " counting half. Relative: the difference over the mean of the baseline.",
            )


def _adjusted(comparison: Comparison, candidates: int) -> str:
    if candidates < 2:
        return "p: t test of the difference."
    how = {"holm": "Holm", "bh": "Benjamini and Hochberg"}[comparison.setup.correction.value]
    return f"p: t test of the difference, adjusted for {candidates} candidates ({how})."


def _difference_cells(contrast: Contrast) -> list[Cell]:
    metric, like = contrast.metric, digits_like(contrast.difference)
    n = f"{contrast.n_baseline:,}"
    if not contrast.paired:
        n = f"{n} and {contrast.n_candidate:,}, not paired"
    if contrast.units.rule is not TaskRule.WORLDS:
        n += f", {contrast.units.tasks:,} tasks"
    return [
        Cell(value(metric, contrast.mean_baseline.point, like)),
        Cell(value(metric, contrast.mean_candidate.point, like)),
        mean_cell(metric, contrast.difference, signed=True),
        Cell(_p(contrast)),
        Cell(verdict_word(contrast)),
        Cell(n if contrast.look is None else f"{contrast.look.pairs:,}, by looks"),
    ]


def _p(contrast: Contrast) -> str:
    if contrast.look is not None or contrast.tests is None:
        return DASH
    return p_text(contrast.tests.p_adjusted).removeprefix("p ").removeprefix("= ")


def _effect_cells(contrast: Contrast) -> list[Cell]:
    effects = contrast.effects
    assert effects is not None
    relative = Cell(DASH)
    if contrast.relative is not None:
        point, *ends = (f"{100 * end:+,.0f}" for end in contrast.relative)
        relative = Cell(f"{point}%", f"[{', '.join(ends)}]" if contrast.relative.known else "")
    return [
        *(mean_cell("", one, signed=True) for one in (effects.d, effects.g, effects.delta)),
        share_cell(effects.improvement),
        relative,
    ]


def _standings(comparison: Comparison) -> Iterator[Block]:
    found, metric = comparison.standings, comparison.setup.primary
    if found is None:
        return
    yield Sheet(
        f"Order by {metric}",
        ["Subject", "Place", "Mean", "Group"],
        [
            (
                comparison.of(one.subject).name,
                [
                    Cell(f"{one.rank}{'=' if one.shared else ''}"),
                    mean_cell(metric, comparison.of(one.subject).metrics[metric].mean),
                    Cell(one.groups),
                ],
            )
            for one in found.order
        ],
        "A place is 1 and the number of subjects that are shown to be better; = marks one that"
        " is shared. Subjects that have a letter in common cannot be told apart.",
    )
    yield Sheet(
        f"All pairs in {metric}",
        ["Pair", "Difference", "p", "Verdict", "n"],
        [
            (
                _versus(comparison, one),
                _difference_cells(one)[2:],
            )
            for one in found.pairs
        ],
        f"p values are adjusted for all {len(found.pairs)} pairs.",
    )


def _versus(comparison: Comparison, one: Contrast) -> str:
    return f"{comparison.of(one.candidate).name} against {comparison.of(one.baseline).name}"
