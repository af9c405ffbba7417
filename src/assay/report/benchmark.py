"""Reports of coding benchmarks: summary of one rollout, and comparison of rollouts.

Names of arms and tasks, outcomes and findings are untrusted text: renderers make them safe.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from assay.bench.rollout_comparison import ArmComparison, RolloutComparison, TaskChange, TaskRow
from assay.bench.summary import SCORE, ArmSummary, BenchmarkSummary
from assay.core.text import counted
from assay.judge.results import Comparison, Contrast, PassRow
from assay.report.comparison.document import comparison_document
from assay.report.comparison.sentences import on_these_tasks, sample_words, verdict_word
from assay.report.comparison.values import comparison_values
from assay.report.document import (
    Block,
    Cell,
    Document,
    Items,
    ReportTable,
    Row,
    Section,
    Tone,
    joined,
    short_name,
)
from assay.report.files import interval_columns, jsonable
from assay.report.numbers import DASH, dollars, level_text, mean_cell, plain, share_cell
from assay.report.provenance import made_by, versions

BENCH_SUMMARY_FORMAT: Final = "assay-bench-summary/1"
BENCH_COMPARISON_FORMAT: Final = "assay-bench-comparison/1"
"""Values of the field `format` in the two JSON outputs."""
_MOST_SENTENCES = 6
"""With more pairs of arms than this, sentences cover only the pairs with the first arm."""
_OF_COMPARISON = ("Answers", "Differences", "Everybody against everybody", "Pair by pair")
"""Sections of a comparison that also apply to tasks and arms."""
_FOLDED = ("Tasks in detail", "Metrics of tasks", "Settings")
_MORE = "--detail prints all tables; --output report.html writes them."


def benchmark_document(summary: BenchmarkSummary) -> Document:
    """Build the report of one benchmark, by arm and by task."""
    arms = sorted(summary.arms, key=lambda arm: 1.0 if arm.score is None else -arm.score.point)
    level = level_text(summary.level)
    blocks: dict[str, list[Block]] = {
        "Arms": [_arms_table(arms, level)],
        "Lost trials": [*_brackets(arms)],
        "Notes": [Items(summary.notes, "", Tone.NOTE)] if summary.notes else [],
        "Cost and time": [_costs_table(arms)],
        "How trials ended": [_outcomes_table(arms)],
        "Findings": [*_findings_table(arms)],
        "Tasks": [_tasks_table(summary)],
        "Tasks in detail": [_task_details(summary, level)],
        "Metrics of tasks": [*_metrics_table(arms)],
        "Settings": [*_settings_table(summary)],
    }
    sections = [
        Section(title, shown, folded=title in _FOLDED)
        for title, shown in blocks.items()
        if shown
    ]
    comparison = summary.comparison
    if comparison is not None:
        sections += _comparison_sections(comparison, "Arm against arm")
    return Document(
        title=_title(summary),
        summary=[*_headlines(arms), *([] if comparison is None else _verdicts(comparison))],
        sections=sections,
        origin=made_by(
            {"level": summary.level, "config": summary.config},
            [(summary.name, stamp) for stamp in summary.stamps],
        ),
        more=_MORE,
        values=lambda: _summary_values(summary),
        rows=lambda: [_csv_row(row) for row in (*summary.arms, *summary.tasks)],
    )


def rollouts_document(comparison: RolloutComparison) -> Document:
    """Build the report that compares rollouts: newly passing, newly failing and flaky tasks."""
    judged = [arm for arm in comparison.arms if arm.comparison is not None]
    first, *others = comparison.rollouts
    blocks: dict[str, list[Block]] = {
        "Arms": [*_compared_table(judged)],
        "Tasks that changed sides": [*_sides(comparison)],
        "Tasks": [*_rows_table(comparison)],
        "Notes": [*_compared_notes(comparison)],
    }
    sections = [Section(title, shown) for title, shown in blocks.items() if shown]
    for arm in judged:
        assert arm.comparison is not None
        sections += _comparison_sections(arm.comparison, arm.arm)
    return Document(
        title=f"{', '.join(others)} compared with {first}",
        summary=[*_compared_summary(comparison)],
        sections=sections,
        origin=made_by({"level": comparison.level, "rollouts": list(comparison.rollouts)}, []),
        more=_MORE,
        values=lambda: _comparison_values(comparison),
        rows=lambda: [*_comparison_rows(comparison)],
    )


# One benchmark


def _title(summary: BenchmarkSummary) -> str:
    stamps = ", ".join(summary.stamps)
    tags = f" ({', '.join(summary.tags)})" if summary.tags else ""
    return f"{summary.name}, {stamps}{tags}"


def _headlines(arms: Sequence[ArmSummary]) -> Iterator[str]:
    scored = [arm for arm in arms if arm.score is not None]
    if not scored:
        yield "No trial counts yet."
        return
    best = scored[0]
    tasks, trials = counted(best.tasks, "task"), _trials(best)
    shown = joined(mean_cell(SCORE, best.score))
    who = (
        f"{short_name(best.arm)} has the highest mean score,"
        if len(scored) > 1
        else f"{short_name(best.arm)} has a mean score of"
    )
    yield f"{who} {shown}, over {tasks} ({trials} trials count)."


def _verdicts(comparison: Comparison) -> list[str]:
    """Return one sentence per pair of arms."""
    pairs: Sequence[Contrast] = comparison.decisive
    if comparison.standings is not None and len(comparison.standings.pairs) <= _MOST_SENTENCES:
        pairs = comparison.standings.pairs
    return [_verdict(comparison, contrast) for contrast in pairs]


def _verdict(comparison: Comparison, contrast: Contrast) -> str:
    a, b = (comparison.of(side).name for side in (contrast.baseline, contrast.candidate))
    difference = joined(mean_cell(SCORE, contrast.difference, signed=True))
    return (
        f"{short_name(b)} against {short_name(a)}: {verdict_word(contrast)}"
        f"{on_these_tasks(contrast)}, {difference} in mean score ({_sample(contrast)})."
    )


def _sample(contrast: Contrast) -> str:
    if contrast.paired:
        return f"paired by {counted(contrast.n_baseline, 'task')}"
    return sample_words(contrast)


def _trials(row: ArmSummary) -> str:
    return f"{row.counts.counted:,}/{row.counts.planned:,}"


def _pass(row: ArmSummary, *, last: bool) -> PassRow | None:
    return row.passes[-1 if last else 0] if row.passes else None


def _arms_table(arms: Sequence[ArmSummary], level: str) -> ReportTable:
    most = {row.k for arm in arms if (row := _pass(arm, last=True)) is not None}
    k = str(next(iter(most))) if len(most) == 1 else "k"
    heads = ["Mean score", "pass@1", f"pass@{k}", f"pass^{k}", "Best", "Trials"]
    rows: list[Row] = []
    for arm in arms:
        one, all_of_it = _pass(arm, last=False), _pass(arm, last=True)
        several = "" if k != "k" or all_of_it is None else f" (k={all_of_it.k})"
        rows.append(
            [
                short_name(arm.arm) + several,
                mean_cell(SCORE, arm.score),
                DASH if one is None else share_cell(one.pass_any),
                DASH if all_of_it is None else share_cell(all_of_it.pass_any),
                DASH if all_of_it is None else share_cell(all_of_it.pass_all),
                plain(arm.best_score),
                _trials(arm),
            ]
        )
    if k == "1":
        heads, rows = [*heads[:2], *heads[4:]], [[*row[:3], *row[5:]] for row in rows]
    return ReportTable(
        "Arms, the highest mean score first",
        ["Arm", *heads],
        rows,
        f"In brackets: {level} intervals over tasks. A trial passes with the full score."
        " pass@k: at least one of k trials of a task passes; pass^k: all k do. Best: the best"
        " trial of each task, averaged. Trials: those that count, of all that were planned.",
    )


def _brackets(arms: Sequence[ArmSummary]) -> Iterator[Block]:
    """Yield the table of means with all lost trials at score 0 and at score 1."""
    lost = [arm for arm in arms if arm.counts.lost]
    if lost:
        yield ReportTable(
            "Mean score, whatever the lost trials would have come to",
            ["Arm", "Lost", "Worst case", "Without them", "Best case"],
            [
                [
                    short_name(arm.arm),
                    f"{arm.counts.lost:,}/{arm.counts.planned:,}",
                    mean_cell(SCORE, arm.worst),
                    mean_cell(SCORE, arm.score),
                    mean_cell(SCORE, arm.best),
                ]
                for arm in lost
            ],
            "Lost: ended by infrastructure errors, or without a grade. Worst case: all of them"
            " at a score of 0; best case: at 1.",
        )


def _costs_table(arms: Sequence[ArmSummary]) -> ReportTable:
    phases = [*dict.fromkeys(phase for arm in arms for phase in arm.seconds)]
    return ReportTable(
        "Cost of all trials, time of one",
        ["Arm", "Cost", "Tokens", *(f"{short_name(phase)} s" for phase in phases)],
        [
            [
                short_name(arm.arm),
                _cost(arm),
                f"{arm.tokens.get('prompt', 0) + arm.tokens.get('completion', 0):,}",
                *(plain(arm.seconds.get(phase)) for phase in phases),
            ]
            for arm in arms
        ],
        "Cost and tokens are those of all trials that ended, lost ones included; seconds are"
        " means.",
    )


def _cost(row: ArmSummary) -> str:
    known, unknown = row.spent
    ended = row.counts.planned - row.counts.pending
    if unknown == ended:
        return "unknown" if ended else DASH
    return dollars(known) + (f" + {unknown:,} unknown" if unknown else "")


def _outcomes_table(arms: Sequence[ArmSummary]) -> ReportTable:
    rows: list[Row] = []
    for arm in arms:
        counts = arm.counts
        ends = [(outcome, number, "yes") for outcome, number in arm.outcomes.items()]
        ends += [(f"{name} (infrastructure)", n, "no") for name, n in arm.errors.items()]
        ends += [("no grade yet", counts.ungraded, "no"), ("not run yet", counts.pending, "no")]
        rows += [
            [
                short_name(arm.arm),
                short_name(name).replace("_", " "),
                f"{number:,}/{counts.planned:,}",
                counts_in,
            ]
            for name, number, counts_in in ends
            if number
        ]
    return ReportTable("How trials ended", ["Arm", "Outcome", "Trials", "In means"], rows)


def _findings_table(arms: Sequence[ArmSummary]) -> Iterator[Block]:
    rows: list[Row] = [
        [
            short_name(arm.arm),
            short_name(finding.name).replace("_", " "),
            f"{finding.trials:,}/{arm.counts.planned:,}",
            short_name(finding.detail, 60),
        ]
        for arm in arms
        for finding in arm.findings
    ]
    if rows:
        yield ReportTable(
            "What was found in trials", ["Arm", "Finding", "Trials", "First"], rows
        )


def _tasks_table(summary: BenchmarkSummary) -> ReportTable:
    by_task: dict[str, dict[str, ArmSummary]] = {}
    for row in summary.tasks:
        by_task.setdefault(row.task or "", {})[row.arm] = row
    arms = [arm.arm for arm in summary.arms]
    return ReportTable(
        "Mean score by task",
        ["Task", *(short_name(arm, 30) for arm in arms)],
        [
            [short_name(task), *(_task_cell(own.get(arm)) for arm in arms)]
            for task, own in by_task.items()
        ],
        "Beside a score: the trials with the full score, of those that count; ~ marks a flaky"
        " task, of which some trials pass and some do not.",
    )


def _task_cell(row: ArmSummary | None) -> Cell:
    if row is None or row.score is None:
        return Cell(DASH)
    flaky = "~" if row.flaky else " "
    return Cell(f"{row.score.point:.2f}", f"{row.passed:,}/{row.counts.counted:,}{flaky}")


def _task_details(summary: BenchmarkSummary, level: str) -> ReportTable:
    return ReportTable(
        "Every arm at every task",
        ["Task", "Arm", "Mean score", "Best", "Trials", "Cost", "Agent s", "Outcomes"],
        [
            [
                short_name(row.task or ""),
                short_name(row.arm, 30),
                mean_cell(SCORE, row.score),
                plain(row.best_score),
                _trials(row),
                _cost(row),
                plain(row.seconds.get("agent")),
                ", ".join(f"{name} {n}" for name, n in {**row.outcomes, **row.errors}.items()),
            ]
            for row in summary.tasks
        ],
        f"In brackets: {level} intervals over the trials of the task.",
    )


def _metrics_table(arms: Sequence[ArmSummary]) -> Iterator[Block]:
    names = [*dict.fromkeys(name for arm in arms for name in arm.metrics)]
    if names:
        yield ReportTable(
            "What tasks measure themselves, means over tasks",
            ["Arm", *(short_name(name, 30) for name in names)],
            [
                [
                    short_name(arm.arm),
                    *(mean_cell(name, arm.metrics.get(name)) for name in names),
                ]
                for arm in arms
            ],
        )


def _settings_table(summary: BenchmarkSummary) -> Iterator[Block]:
    answered = {arm.arm: ", ".join(arm.answered_as) for arm in summary.arms}
    yield ReportTable(
        "What the arms are",
        ["Arm", "Agent", "Model", "Answered as", "Settings"],
        [
            [
                short_name(entry.label),
                short_name(entry.agent, 30),
                short_name(entry.model or DASH, 40),
                short_name(answered.get(entry.label) or DASH, 40),
                short_name(
                    ", ".join(f"{name}={value}" for name, value in entry.settings.items())
                )
                or DASH,
            ]
            for entry in summary.entries
        ],
    )


def _comparison_sections(comparison: Comparison, about: str) -> list[Section]:
    made = comparison_document(comparison)
    return [
        replace(section, title=f"{about}: {section.title.lower()}", folded=True, closing=False)
        for section in made.sections
        if section.title in _OF_COMPARISON
    ]


def _summary_values(summary: BenchmarkSummary) -> dict[str, Any]:
    comparison = summary.comparison
    own = jsonable(replace(summary, arms=(), tasks=(), comparison=None))
    del own["comparison"]  # The comparison is written last.
    return {
        "format": BENCH_SUMMARY_FORMAT,
        "made": versions(),
        **own,
        "arms": [_arm_values(row) for row in summary.arms],
        "tasks": [_arm_values(row) for row in summary.tasks],
        "comparison": None if comparison is None else comparison_values(comparison),
    }


def _arm_values(row: ArmSummary) -> dict[str, Any]:
    passes = [{"k": one.k, "any": one.pass_any, "all": one.pass_all} for one in row.passes]
    return {**jsonable(row), "passes": jsonable(passes)}


def _csv_row(row: ArmSummary) -> dict[str, Any]:
    one, most = _pass(row, last=False), _pass(row, last=True)
    return {
        "arm": row.arm,
        "task": row.task,
        "tasks": row.tasks,
        **row.counts._asdict(),
        "counted": row.counts.counted,
        **interval_columns("score", row.score),
        "worst": row.worst and row.worst.point,
        "best": row.best and row.best.point,
        "best_score": row.best_score,
        "passed": row.passed,
        **interval_columns("pass_at_1", one and one.pass_any),
        "k": most and most.k,
        **interval_columns("pass_at_k", most and most.pass_any),
        **interval_columns("pass_all_k", most and most.pass_all),
        "cost_usd": row.spent.known,
        "cost_unknown": row.spent.unknown,
        "prompt_tokens": row.tokens.get("prompt", 0),
        "completion_tokens": row.tokens.get("completion", 0),
        **{f"{phase}_s": row.seconds.get(phase) for phase in ("setup", "agent", "grading")},
        "outcomes": " ".join(f"{name}:{n}" for name, n in row.outcomes.items()),
        "errors": " ".join(f"{name}:{n}" for name, n in row.errors.items()),
        "findings": " ".join(f"{one.name}:{one.trials}" for one in row.findings),
        "grading": " ".join(f"{name}:{n}" for name, n in row.grading.items()),
    }


# Rollouts compared


def _compared_summary(comparison: RolloutComparison) -> Iterator[str]:
    for arm in comparison.arms:
        if arm.comparison is None:
            yield f"{short_name(arm.arm)}: not judged. {' '.join(arm.reasons)}".strip()
        else:
            yield from _verdicts(arm.comparison)
    for change in (TaskChange.NEWLY_FAILING, TaskChange.NEWLY_PASSING):
        if rows := comparison.changes(change):
            yield f"{change.value.capitalize()}: {_row_names(rows)}."
    if comparison.flaky:
        yield f"Flaky: {_row_names(comparison.flaky)}."


def _row_names(rows: Sequence[TaskRow]) -> str:
    several = len({row.arm for row in rows}) > 1
    names = [f"{row.task} ({row.arm})" if several else row.task for row in rows]
    return ", ".join(map(short_name, names))


def _compared_table(arms: Sequence[ArmComparison]) -> Iterator[Block]:
    rows: list[Row] = []
    for arm in arms:
        assert arm.comparison is not None
        for contrast in arm.comparison.decisive:
            rows.append(
                [
                    short_name(arm.comparison.of(contrast.candidate).name),
                    mean_cell(SCORE, contrast.mean_baseline)[0],
                    mean_cell(SCORE, contrast.mean_candidate)[0],
                    mean_cell(SCORE, contrast.difference, signed=True),
                    verdict_word(contrast),
                    f"{contrast.n_baseline:,} {'tasks' if contrast.paired else 'trials'}",
                ]
            )
    if rows:
        yield ReportTable(
            "Arm by arm, mean score over the tasks that are the same",
            ["Arm", "Before", "Now", "Difference", "Verdict", "n"],
            rows,
            "Before: in the first rollout. In brackets: the interval of the difference.",
        )


def _sides(comparison: RolloutComparison) -> Iterator[Block]:
    for change in TaskChange:
        if rows := comparison.changes(change):
            yield Items(
                [
                    f"{short_name(row.task)} ({short_name(row.arm)}): {_counts(row)}"
                    for row in rows
                ],
                change.value.capitalize(),
                Tone.WARNING if change is TaskChange.NEWLY_FAILING else Tone.PLAIN,
            )
    if comparison.flaky:
        yield Items(
            [
                f"{short_name(row.task)} ({short_name(row.arm)}): {_counts(row)}"
                for row in comparison.flaky
            ],
            "Flaky: some trials pass and some do not",
        )


def _counts(row: TaskRow) -> str:
    return " -> ".join(
        DASH if own is None else f"{own.passed:,}/{own.counts.counted:,}"
        for own in row.rollouts
    )


def _rows_table(comparison: RolloutComparison) -> Iterator[Block]:
    if comparison.tasks:
        several = len({row.arm for row in comparison.tasks}) > 1
        order = sorted(comparison.tasks, key=_urgency)
        yield ReportTable(
            "Mean score by task",
            ["Task", *(short_name(name, 40) for name in comparison.rollouts), "Change"],
            [
                [
                    short_name(f"{row.task} ({row.arm})" if several else row.task),
                    *(_task_cell(own) for own in row.rollouts),
                    _what(row),
                ]
                for row in order
            ],
            "Beside a score: the trials with the full score, of those that count. ~ marks a"
            " flaky task.",
        )


def _what(row: TaskRow) -> str:
    if row.changed:
        return "another task now"
    changes = [row.change(place) for place in range(1, len(row.rollouts))]
    if found := [change.value for change in dict.fromkeys(changes) if change is not None]:
        return ", ".join(found)
    if None in row.rollouts:
        return "not in all"
    return "flaky" if row.flaky else ""


def _urgency(row: TaskRow) -> int:
    order = ("newly failing", "newly passing", "flaky", "another task now", "not in all")
    said = _what(row)
    return next((place for place, word in enumerate(order) if word in said), len(order))


def _compared_notes(comparison: RolloutComparison) -> Iterator[Block]:
    said = [*comparison.notes]
    for arm in comparison.arms:
        said += arm.reasons
        said += arm.comparison.notes if arm.comparison is not None else ()
    if said:
        yield Items([*dict.fromkeys(said)], "", Tone.NOTE)


def _comparison_values(comparison: RolloutComparison) -> dict[str, Any]:
    return {
        "format": BENCH_COMPARISON_FORMAT,
        "made": versions(),
        "rollouts": list(comparison.rollouts),
        "level": comparison.level,
        "notes": list(comparison.notes),
        "arms": [
            {
                "arm": arm.arm,
                "reasons": list(arm.reasons),
                "comparison": None
                if arm.comparison is None
                else comparison_values(arm.comparison),
            }
            for arm in comparison.arms
        ],
        "tasks": [
            {
                **jsonable(replace(row, rollouts=())),
                "rollouts": [own and _arm_values(own) for own in row.rollouts],
                "flaky": row.flaky,
                "changes": [
                    change.value if (change := row.change(place)) else None
                    for place in range(1, len(row.rollouts))
                ],
            }
            for row in comparison.tasks
        ],
    }


def _comparison_rows(comparison: RolloutComparison) -> Iterator[dict[str, Any]]:
    for row in comparison.tasks:
        columns: dict[str, Any] = {"arm": row.arm, "task": row.task, "change": _what(row)}
        columns["flaky"] = row.flaky
        for place, own in enumerate(row.rollouts, 1):
            columns |= {
                f"rollout_{place}": comparison.rollouts[place - 1],
                f"score_{place}": None if own is None or own.score is None else own.score.point,
                f"passed_{place}": own and own.passed,
                f"counted_{place}": own and own.counts.counted,
            }
        yield columns
