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
from assay.report.comparison.sentences import (
    describe_sample,
    lost_counts,
    task_restriction,
    verdict_word,
)
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
    join_cell,
    shorten_name,
)
from assay.report.files import interval_columns, to_json_value
from assay.report.numbers import (
    DASH,
    format_dollars,
    format_number,
    level_text,
    mean_cell,
    share_cell,
)
from assay.report.provenance import provenance_lines, software_versions

BENCH_SUMMARY_FORMAT: Final = "assay-bench-summary/1"
BENCH_COMPARISON_FORMAT: Final = "assay-bench-comparison/1"
"""Values of the field `format` in the two JSON outputs."""
_MAX_SENTENCES = 6
"""With more pairs of arms than this, sentences cover only the pairs with the first arm."""
_COMPARISON_SECTIONS = ("Answers", "Differences", "Ranking", "Pair by pair")
"""Sections of a comparison that also apply to tasks and arms."""
_FOLDED_SECTIONS = ("Tasks in detail", "Metrics of tasks", "Settings")
_MORE_HINT = "--detail prints all tables; --output report.html writes them."


def benchmark_document(summary: BenchmarkSummary) -> Document:
    """Build the report of one benchmark, by arm and by task."""
    arms = sorted(summary.arms, key=lambda arm: 1.0 if arm.score is None else -arm.score.point)
    level = level_text(summary.level)
    blocks: dict[str, list[Block]] = {
        "Arms": [_arms_table(arms, level)],
        "Lost trials": [*_lost_trials_table(arms)],
        "Notes": [Items(summary.notes, "", Tone.NOTE)] if summary.notes else [],
        "Cost and time": [_costs_table(arms)],
        "How trials ended": [_outcomes_table(arms)],
        "Findings": [*_findings_table(arms)],
        "Tasks": [_tasks_table(summary)],
        "Tasks in detail": [_task_details_table(summary, level)],
        "Metrics of tasks": [*_metrics_table(arms)],
        "Settings": [*_settings_table(summary)],
    }
    sections = [
        Section(title, shown, folded=title in _FOLDED_SECTIONS)
        for title, shown in blocks.items()
        if shown
    ]
    comparison = summary.comparison
    if comparison is not None:
        sections += _comparison_sections(comparison, "Arm against arm")
    return Document(
        title=_format_title(summary),
        summary=[
            *_describe_best_arm(arms),
            *([] if comparison is None else _verdict_sentences(comparison)),
        ],
        sections=sections,
        origin=provenance_lines(
            {"level": summary.level, "config": summary.config},
            [(summary.name, stamp) for stamp in summary.stamps],
        ),
        more=_MORE_HINT,
        values=lambda: _summary_json(summary),
        rows=lambda: [_csv_row(row) for row in (*summary.arms, *summary.tasks)],
    )


def rollouts_document(comparison: RolloutComparison) -> Document:
    """Build the report that compares rollouts: newly passing, newly failing and flaky tasks."""
    judged = [arm for arm in comparison.arms if arm.comparison is not None]
    first, *others = comparison.rollouts
    blocks: dict[str, list[Block]] = {
        "Arms": [*_arm_differences_table(judged)],
        "Changed tasks": [*_list_changed_tasks(comparison)],
        "Tasks": [*_rollout_tasks_table(comparison)],
        "Notes": [*_collect_notes(comparison)],
    }
    sections = [Section(title, shown) for title, shown in blocks.items() if shown]
    for arm in judged:
        assert arm.comparison is not None
        sections += _comparison_sections(arm.comparison, arm.arm)
    return Document(
        title=f"{', '.join(others)} compared with {first}",
        summary=[*_summarize_rollouts(comparison)],
        sections=sections,
        origin=provenance_lines(
            {"level": comparison.level, "rollouts": list(comparison.rollouts)}, []
        ),
        more=_MORE_HINT,
        values=lambda: _rollouts_json(comparison),
        rows=lambda: [*_rollouts_csv_rows(comparison)],
    )


# Summary of one benchmark


def _format_title(summary: BenchmarkSummary) -> str:
    stamps = ", ".join(summary.stamps)
    tags = f" ({', '.join(summary.tags)})" if summary.tags else ""
    return f"{summary.name}, {stamps}{tags}"


def _describe_best_arm(arms: Sequence[ArmSummary]) -> Iterator[str]:
    scored = [arm for arm in arms if arm.score is not None]
    if not scored:
        yield "No trial has a score yet."
        return
    best = scored[0]
    if lossy := [arm for arm in scored if arm.counts.lost]:
        said = "; ".join(
            f"{shorten_name(arm.arm)} {_lossy(arm)}"
            if arm in lossy
            else f"{shorten_name(arm.arm)} {join_cell(mean_cell(SCORE, arm.score))}"
            for arm in scored
        )
        yield f"Trials were lost, so that mean scores are not known exactly: {said}."
        return
    tasks, trials = counted(best.tasks, "task"), _format_trials(best)
    mean = join_cell(mean_cell(SCORE, best.score))
    subject = (
        f"{shorten_name(best.arm)} has the highest mean score:"
        if len(scored) > 1
        else f"{shorten_name(best.arm)} has a mean score of"
    )
    yield f"{subject} {mean} over {tasks} ({trials} trials counted)."


def _verdict_sentences(comparison: Comparison) -> list[str]:
    """Return one sentence per pair of arms."""
    pairs: Sequence[Contrast] = comparison.decisive
    if comparison.standings is not None and len(comparison.standings.pairs) <= _MAX_SENTENCES:
        pairs = comparison.standings.pairs
    return [_verdict_sentence(comparison, contrast) for contrast in pairs]


def _verdict_sentence(comparison: Comparison, contrast: Contrast) -> str:
    a, b = (comparison.of(side).name for side in (contrast.baseline, contrast.candidate))
    difference = join_cell(mean_cell(SCORE, contrast.difference, signed=True))
    return (
        f"{shorten_name(b)} against {shorten_name(a)}: {verdict_word(contrast)}"
        f"{task_restriction(contrast)}, {difference} in mean score"
        f" ({_describe_sample(contrast)})."
        f"{'' if contrast.losses is None else f' {lost_counts(comparison, contrast)}.'}"
    )


def _describe_sample(contrast: Contrast) -> str:
    if contrast.paired:
        return f"paired by {counted(contrast.n_baseline, 'task')}"
    return describe_sample(contrast)


def _lossy(row: ArmSummary) -> str:
    """Return the range of the mean score, whatever the lost trials would have scored."""
    assert row.worst is not None
    assert row.best is not None
    return (
        f"{row.worst.point:.2f} to {row.best.point:.2f}"
        f" ({row.counts.lost:,} of {row.counts.planned:,} without a score)"
    )


def _format_trials(row: ArmSummary) -> str:
    return f"{row.counts.counted:,}/{row.counts.planned:,}"


def _select_pass_row(row: ArmSummary, *, last: bool) -> PassRow | None:
    return row.passes[-1 if last else 0] if row.passes else None


def _arms_table(arms: Sequence[ArmSummary], level: str) -> ReportTable:
    max_ks = {row.k for arm in arms if (row := _select_pass_row(arm, last=True)) is not None}
    k = str(next(iter(max_ks))) if len(max_ks) == 1 else "k"
    heads = ["Mean score", "pass@1", f"pass@{k}", f"pass^{k}", "Best", "Trials"]
    rows: list[Row] = []
    for arm in arms:
        first_pass, last_pass = (
            _select_pass_row(arm, last=False),
            _select_pass_row(arm, last=True),
        )
        suffix = "" if k != "k" or last_pass is None else f" (k={last_pass.k})"
        rows.append(
            [
                shorten_name(arm.arm) + suffix,
                _lossy(arm) if arm.counts.lost and arm.worst else mean_cell(SCORE, arm.score),
                DASH if first_pass is None else share_cell(first_pass.pass_any),
                DASH if last_pass is None else share_cell(last_pass.pass_any),
                DASH if last_pass is None else share_cell(last_pass.pass_all),
                format_number(arm.best_score),
                _format_trials(arm),
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
        " trial of each task, averaged. Trials: counted / planned.",
    )


def _lost_trials_table(arms: Sequence[ArmSummary]) -> Iterator[Block]:
    """Yield the table of means with all lost trials at score 0 and at score 1."""
    lost = [arm for arm in arms if arm.counts.lost]
    if lost:
        yield ReportTable(
            "Mean score with bounds for the lost trials",
            ["Arm", "Lost", "Worst case", "Without lost trials", "Best case"],
            [
                [
                    shorten_name(arm.arm),
                    f"{arm.counts.lost:,}/{arm.counts.planned:,}",
                    mean_cell(SCORE, arm.worst),
                    mean_cell(SCORE, arm.score),
                    mean_cell(SCORE, arm.best),
                ]
                for arm in lost
            ],
            "Lost: infrastructure errors and trials without a grade. Worst case: all lost"
            " trials score 0. Best case: they score 1.",
        )


def _costs_table(arms: Sequence[ArmSummary]) -> ReportTable:
    phases = [*dict.fromkeys(phase for arm in arms for phase in arm.seconds)]
    return ReportTable(
        "Total cost, and mean time per trial",
        ["Arm", "Cost", "Tokens", *(f"{shorten_name(phase)} s" for phase in phases)],
        [
            [
                shorten_name(arm.arm),
                _format_cost(arm),
                f"{arm.tokens.get('prompt', 0) + arm.tokens.get('completion', 0):,}",
                *(format_number(arm.seconds.get(phase)) for phase in phases),
            ]
            for arm in arms
        ],
        "Cost and tokens are totals over all trials that ended, including lost ones; seconds"
        " are means.",
    )


def _format_cost(row: ArmSummary) -> str:
    known, unknown = row.spent
    ended = row.counts.planned - row.counts.pending
    if unknown == ended:
        return "unknown" if ended else DASH
    return format_dollars(known) + (f" + {unknown:,} unknown" if unknown else "")


def _outcomes_table(arms: Sequence[ArmSummary]) -> ReportTable:
    rows: list[Row] = []
    for arm in arms:
        counts = arm.counts
        ends = [(outcome, number, "yes") for outcome, number in arm.outcomes.items()]
        ends += [(f"{name} (infrastructure)", n, "no") for name, n in arm.errors.items()]
        ends += [("no grade yet", counts.ungraded, "no"), ("not run yet", counts.pending, "no")]
        rows += [
            [
                shorten_name(arm.arm),
                shorten_name(name).replace("_", " "),
                f"{number:,}/{counts.planned:,}",
                in_means,
            ]
            for name, number, in_means in ends
            if number
        ]
    return ReportTable("How trials ended", ["Arm", "Outcome", "Trials", "In means"], rows)


def _findings_table(arms: Sequence[ArmSummary]) -> Iterator[Block]:
    rows: list[Row] = [
        [
            shorten_name(arm.arm),
            shorten_name(finding.name).replace("_", " "),
            f"{finding.trials:,}/{arm.counts.planned:,}",
            shorten_name(finding.detail, 60),
        ]
        for arm in arms
        for finding in arm.findings
    ]
    if rows:
        yield ReportTable("Findings", ["Arm", "Finding", "Trials", "First detail"], rows)


def _tasks_table(summary: BenchmarkSummary) -> ReportTable:
    by_task: dict[str, dict[str, ArmSummary]] = {}
    for row in summary.tasks:
        by_task.setdefault(row.task or "", {})[row.arm] = row
    arms = [arm.arm for arm in summary.arms]
    return ReportTable(
        "Mean score by task",
        ["Task", *(shorten_name(arm, 30) for arm in arms)],
        [
            [shorten_name(task), *(_task_cell(by_arm.get(arm)) for arm in arms)]
            for task, by_arm in by_task.items()
        ],
        "Next to each score: trials with the full score / trials counted. ~ marks a flaky task:"
        " some trials pass and some fail.",
    )


def _task_cell(row: ArmSummary | None) -> Cell:
    if row is None or row.score is None:
        return Cell(DASH)
    flaky = "~" if row.flaky else " "
    return Cell(f"{row.score.point:.2f}", f"{row.passed:,}/{row.counts.counted:,}{flaky}")


def _task_details_table(summary: BenchmarkSummary, level: str) -> ReportTable:
    return ReportTable(
        "Results by task and arm",
        ["Task", "Arm", "Mean score", "Best", "Trials", "Cost", "Agent s", "Outcomes"],
        [
            [
                shorten_name(row.task or ""),
                shorten_name(row.arm, 30),
                mean_cell(SCORE, row.score),
                format_number(row.best_score),
                _format_trials(row),
                _format_cost(row),
                format_number(row.seconds.get("agent")),
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
            "Metrics reported by tasks, means over tasks",
            ["Arm", *(shorten_name(name, 30) for name in names)],
            [
                [
                    shorten_name(arm.arm),
                    *(mean_cell(name, arm.metrics.get(name)) for name in names),
                ]
                for arm in arms
            ],
        )


def _settings_table(summary: BenchmarkSummary) -> Iterator[Block]:
    answered = {arm.arm: ", ".join(arm.answered_as) for arm in summary.arms}
    yield ReportTable(
        "Settings of the arms",
        ["Arm", "Agent", "Model", "Reported model", "Settings"],
        [
            [
                shorten_name(entry.label),
                shorten_name(entry.agent, 30),
                shorten_name(entry.model or DASH, 40),
                shorten_name(answered.get(entry.label) or DASH, 40),
                shorten_name(
                    ", ".join(f"{name}={value}" for name, value in entry.settings.items())
                )
                or DASH,
            ]
            for entry in summary.entries
        ],
    )


def _comparison_sections(comparison: Comparison, about: str) -> list[Section]:
    document = comparison_document(comparison)
    return [
        replace(section, title=f"{about}: {section.title.lower()}", folded=True, closing=False)
        for section in document.sections
        if section.title in _COMPARISON_SECTIONS
    ]


def _summary_json(summary: BenchmarkSummary) -> dict[str, Any]:
    comparison = summary.comparison
    values = to_json_value(replace(summary, arms=(), tasks=(), comparison=None))
    del values["comparison"]  # The comparison is written last.
    return {
        "format": BENCH_SUMMARY_FORMAT,
        "made": software_versions(),
        **values,
        "arms": [_arm_json(row) for row in summary.arms],
        "tasks": [_arm_json(row) for row in summary.tasks],
        "comparison": None if comparison is None else comparison_values(comparison),
    }


def _arm_json(row: ArmSummary) -> dict[str, Any]:
    passes = [{"k": item.k, "any": item.pass_any, "all": item.pass_all} for item in row.passes]
    return {**to_json_value(row), "passes": to_json_value(passes)}


def _csv_row(row: ArmSummary) -> dict[str, Any]:
    first_pass, last_pass = _select_pass_row(row, last=False), _select_pass_row(row, last=True)
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
        **interval_columns("pass_at_1", first_pass and first_pass.pass_any),
        "k": last_pass and last_pass.k,
        **interval_columns("pass_at_k", last_pass and last_pass.pass_any),
        **interval_columns("pass_all_k", last_pass and last_pass.pass_all),
        "cost_usd": row.spent.known,
        "cost_unknown": row.spent.unknown,
        "prompt_tokens": row.tokens.get("prompt", 0),
        "completion_tokens": row.tokens.get("completion", 0),
        **{f"{phase}_s": row.seconds.get(phase) for phase in ("setup", "agent", "grading")},
        "outcomes": " ".join(f"{name}:{n}" for name, n in row.outcomes.items()),
        "errors": " ".join(f"{name}:{n}" for name, n in row.errors.items()),
        "findings": " ".join(f"{item.name}:{item.trials}" for item in row.findings),
        "grading": " ".join(f"{name}:{n}" for name, n in row.grading.items()),
    }


# Comparison of rollouts


def _summarize_rollouts(comparison: RolloutComparison) -> Iterator[str]:
    for arm in comparison.arms:
        if arm.comparison is None:
            yield f"{shorten_name(arm.arm)}: no verdict. {' '.join(arm.reasons)}".strip()
        else:
            yield from _verdict_sentences(arm.comparison)
    for change in (TaskChange.NEWLY_FAILING, TaskChange.NEWLY_PASSING):
        if rows := comparison.changes(change):
            yield f"{change.value.capitalize()}: {_list_tasks(rows)}."
    if comparison.flaky:
        yield f"Flaky: {_list_tasks(comparison.flaky)}."


def _list_tasks(rows: Sequence[TaskRow]) -> str:
    has_several_arms = len({row.arm for row in rows}) > 1
    names = [f"{row.task} ({row.arm})" if has_several_arms else row.task for row in rows]
    return ", ".join(map(shorten_name, names))


def _arm_differences_table(arms: Sequence[ArmComparison]) -> Iterator[Block]:
    rows: list[Row] = []
    for arm in arms:
        assert arm.comparison is not None
        for contrast in arm.comparison.decisive:
            rows.append(
                [
                    shorten_name(arm.comparison.of(contrast.candidate).name),
                    mean_cell(SCORE, contrast.mean_baseline)[0],
                    mean_cell(SCORE, contrast.mean_candidate)[0],
                    mean_cell(SCORE, contrast.difference, signed=True),
                    verdict_word(contrast),
                    f"{contrast.n_baseline:,} {'tasks' if contrast.paired else 'trials'}",
                ]
            )
    if rows:
        yield ReportTable(
            "Mean score by arm, over unchanged tasks",
            ["Arm", "Before", "Now", "Difference", "Verdict", "n"],
            rows,
            "Before: the first rollout. In brackets: the interval of the difference.",
        )


def _list_changed_tasks(comparison: RolloutComparison) -> Iterator[Block]:
    for change in TaskChange:
        if rows := comparison.changes(change):
            yield Items(
                [
                    f"{shorten_name(row.task)} ({shorten_name(row.arm)}): {_format_passes(row)}"
                    for row in rows
                ],
                change.value.capitalize(),
                Tone.WARNING if change is TaskChange.NEWLY_FAILING else Tone.PLAIN,
            )
    if comparison.flaky:
        yield Items(
            [
                f"{shorten_name(row.task)} ({shorten_name(row.arm)}): {_format_passes(row)}"
                for row in comparison.flaky
            ],
            "Flaky: some trials pass and some fail",
        )


def _format_passes(row: TaskRow) -> str:
    return " -> ".join(
        DASH if rollout is None else f"{rollout.passed:,}/{rollout.counts.counted:,}"
        for rollout in row.rollouts
    )


def _rollout_tasks_table(comparison: RolloutComparison) -> Iterator[Block]:
    if comparison.tasks:
        has_several_arms = len({row.arm for row in comparison.tasks}) > 1
        order = sorted(comparison.tasks, key=_change_priority)
        yield ReportTable(
            "Mean score by task",
            ["Task", *(shorten_name(name, 40) for name in comparison.rollouts), "Change"],
            [
                [
                    shorten_name(f"{row.task} ({row.arm})" if has_several_arms else row.task),
                    *(_task_cell(rollout) for rollout in row.rollouts),
                    _describe_change(row),
                ]
                for row in order
            ],
            "Next to each score: trials with the full score / trials counted. ~ marks a flaky"
            " task.",
        )


def _describe_change(row: TaskRow) -> str:
    if row.changed:
        return "another task now"
    changes = [row.change(index) for index in range(1, len(row.rollouts))]
    if values := [change.value for change in dict.fromkeys(changes) if change is not None]:
        return ", ".join(values)
    if None in row.rollouts:
        return "not in all"
    return "flaky" if row.flaky else ""


def _change_priority(row: TaskRow) -> int:
    order = ("newly failing", "newly passing", "flaky", "another task now", "not in all")
    description = _describe_change(row)
    return next((index for index, word in enumerate(order) if word in description), len(order))


def _collect_notes(comparison: RolloutComparison) -> Iterator[Block]:
    notes = [*comparison.notes]
    for arm in comparison.arms:
        notes += arm.reasons
        notes += arm.comparison.notes if arm.comparison is not None else ()
    if notes:
        yield Items([*dict.fromkeys(notes)], "", Tone.NOTE)


def _rollouts_json(comparison: RolloutComparison) -> dict[str, Any]:
    return {
        "format": BENCH_COMPARISON_FORMAT,
        "made": software_versions(),
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
                **to_json_value(replace(row, rollouts=())),
                "rollouts": [rollout and _arm_json(rollout) for rollout in row.rollouts],
                "flaky": row.flaky,
                "changes": [
                    change.value if (change := row.change(index)) else None
                    for index in range(1, len(row.rollouts))
                ],
            }
            for row in comparison.tasks
        ],
    }


def _rollouts_csv_rows(comparison: RolloutComparison) -> Iterator[dict[str, Any]]:
    for row in comparison.tasks:
        columns: dict[str, Any] = {
            "arm": row.arm,
            "task": row.task,
            "change": _describe_change(row),
        }
        columns["flaky"] = row.flaky
        for number, rollout in enumerate(row.rollouts, 1):
            columns |= {
                f"rollout_{number}": comparison.rollouts[number - 1],
                f"score_{number}": None
                if rollout is None or rollout.score is None
                else rollout.score.point,
                f"passed_{number}": rollout and rollout.passed,
                f"counted_{number}": rollout and rollout.counts.counted,
            }
        yield columns
