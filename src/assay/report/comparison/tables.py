"""Descriptive tables of a comparison: values, instances, versions, pairs, costs, curves.

Each function yields the tables of one section, or none if there is nothing to describe.
"""

import shlex
from collections.abc import Iterator, Sequence
from itertools import accumulate

from assay.core.canonical_json import derive_id
from assay.judge.outcomes import Unit, outcome_of
from assay.judge.results import Comparison, Contrast, InstanceRow, SubjectFacts
from assay.judge.subjects import Subject, TrialOutcome, endings
from assay.report.comparison.next_steps import database_option
from assay.report.document import ReportTable, Row
from assay.report.numbers import (
    DASH,
    format_count,
    format_difference,
    format_number,
    format_p_value,
    format_value,
    level_text,
    mean_cell,
    rounding_reference,
    share_cell,
)

MAX_PAIRS = 200
"""Maximum number of pairs in a table; the JSON output has all of them."""


def value_tables(comparison: Comparison, metrics: Sequence[str]) -> Iterator[ReportTable]:
    """Yield a table per metric: mean, median, spread and range of each subject."""
    for metric in metrics:
        rows = [
            _metric_row(facts, metric)
            for facts in comparison.subjects
            if metric in facts.metrics
        ]
        heads = ["Name", "Trials", "Mean", "Median", "SD", "Lowest", "Highest"]
        judged = sum(facts.judged for facts in comparison.subjects)
        if rows:
            note = "* is a reference entry." if judged < len(rows) else ""
            yield ReportTable(metric, heads, rows, note)


def _metric_row(facts: SubjectFacts, metric: str) -> Row:
    numbers = facts.metrics[metric]
    marks = (numbers.median, numbers.sd, numbers.least, numbers.most)
    return [
        _mark_name(facts),
        format_count(numbers.n),
        mean_cell(metric, numbers.mean),
        *(format_value(metric, mark, rounding_reference(numbers.mean)) for mark in marks),
    ]


def _mark_name(facts: SubjectFacts) -> str:
    return facts.name if facts.judged else f"{facts.name}*"


def score_tables(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the tables of Crafter scores, if episodes record their unlocks."""
    if not comparison.scores:
        return
    at = comparison.scores[0].at
    yield ReportTable(
        "Crafter score (%)",
        ["Name", "Episodes", "Score", f"At {at:,} episodes", "Corrected"],
        [
            [
                _mark_name(comparison.of(row.subject)),
                format_count(row.n),
                mean_cell("", row.interval),
                format_number(row.matched),
                format_number(row.corrected),
            ]
            for row in comparison.scores
        ],
        "The score increases with the number of episodes: compare only the column with"
        f" {at:,} episodes of each. Corrected: the jackknife estimate for very many episodes."
        " The interval is conservative: it allows for correlated achievements.",
    )
    if comparison.score_gaps:
        yield ReportTable(
            f"Difference in Crafter score from {comparison.baseline.name}",
            ["Name", "At episodes", "Difference", "Estimated limit"],
            [
                [
                    _mark_name(comparison.of(gap.subject)),
                    format_count(gap.episodes),
                    mean_cell("", gap.interval, signed=True),
                    mean_cell("", gap.limit, signed=True),
                ]
                for gap in comparison.score_gaps
            ],
            f"In brackets: {_describe_level(comparison, at)}intervals, not adjusted for"
            " multiple comparisons. Estimated limit: the difference for infinitely many"
            " episodes.",
        )


def _describe_level(comparison: Comparison, episodes: int) -> str:
    """Format the level of score intervals; it was not measured below five episodes."""
    return f"{'about ' if episodes < 5 else ''}{level_text(comparison.setup.level)} "


def instance_tables(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the tables of success and time by task, if trials record them."""
    if not comparison.instances:
        return
    enough = format_number(comparison.setup.success_achievements).removesuffix(".00")
    timed = any(row.times for row in comparison.instances)
    heads = ["Task", "Name", "Trials", "Successes", "Success rate"]
    note = (
        f"A trial without a recorded success is a success from {enough} achievements on. In"
        f" brackets: about {level_text(comparison.setup.level)} intervals, exact for success"
        " if each world was played once; trials of the same world count once."
    )
    if timed:
        heads += ["Half by", "Mean time", "No success", "p of times"]
        note += (
            " Half by: the time by which half of all trials had succeeded; a dash if fewer did."
            " A trial that ended without success never succeeds; Mean time counts it with the"
            " longest time of the task. p: log-rank test against the"
            " first name, not adjusted; none where a world was played twice. Times are"
            f" {_describe_time_unit(comparison)}."
        )
    rows = [_instance_row(comparison, row, timed=timed) for row in comparison.instances]
    yield ReportTable("Success and time by task", heads, rows, note)
    if comparison.passes:
        about = (
            ""
            if min(row.worlds for row in comparison.passes) >= _MIN_WORLDS_FOR_LEVEL
            else "about "
        )
        yield ReportTable(
            "Success in k attempts at a world",
            ["Name", "k", "pass@k", "pass^k", "Worlds", "Attempts"],
            [
                [
                    _mark_name(comparison.of(row.subject)),
                    format_count(row.k),
                    share_cell(row.pass_any),
                    share_cell(row.pass_all),
                    format_count(row.worlds),
                    format_count(row.attempts),
                ]
                for row in comparison.passes
            ],
            "pass@k: the chance that at least one of k attempts succeeds; pass^k: that all k"
            f" do. In brackets: {about}{level_text(comparison.setup.level)} intervals over"
            " worlds.",
        )


_MIN_WORLDS_FOR_LEVEL = 20
"""From this number of worlds on, intervals of pass@k were measured to keep their level."""


def _describe_time_unit(comparison: Comparison) -> str:
    steps = any(row.unit == "steps" for row in comparison.instances)
    return "steps to the achievement that made it a success" if steps else "those of trials"


def _instance_row(comparison: Comparison, row: InstanceRow, *, timed: bool) -> Row:
    without = f"{row.without:,} of {len(row.times):,}" if row.times else DASH
    metric = "steps" if row.unit == "steps" else "duration_s"
    times = [
        format_value(metric, row.median_time),
        mean_cell(metric, row.mean_time),
        without,
        DASH if row.p_value is None else format_p_value(row.p_value),
    ]
    return [
        row.task,
        _mark_name(comparison.of(row.subject)),
        format_count(row.n),
        format_count(row.successes),
        share_cell(row.success),
        *(times if timed else ()),
    ]


def whole_subject_table(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the table of values for whole subjects, if any; their spread is unknown."""
    names = list(dict.fromkeys(name for facts in comparison.subjects for name in facts.whole))
    if names:
        yield ReportTable(
            "Metrics of all trials together",
            ["Name", *names],
            [
                [facts.name, *(format_value(name, facts.whole.get(name)) for name in names)]
                for facts in comparison.subjects
            ],
            "These metrics are computed from all trials at once: one number per entry, without"
            " an interval or a verdict.",
        )


def endings_table(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the table of reasons for which trials ended, if known."""
    counts = {facts.name: endings(facts.subject.trials) for facts in comparison.subjects}
    reasons = list(
        dict.fromkeys(reason for ending_counts in counts.values() for reason in ending_counts)
    )
    if reasons:
        rows: list[Row] = [
            [name, *(f"{ending_counts.get(reason, 0):,}" for reason in reasons)]
            for name, ending_counts in counts.items()
        ]
        yield ReportTable("Trials by reason for their end", ["Name", *reasons], rows)


def subjects_table(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the table of subjects: series, version, commit, note, source, custom keys."""
    rows = []
    for subject in (facts.subject for facts in comparison.subjects):
        commit, created = subject.commit, subject.created_at
        texts = (
            subject.series,
            subject.version,
            subject.model,
            commit and commit[:10] + ("+" if commit[10:].endswith("+") else ""),
            created and f"{created:%Y-%m-%d}",
            subject.note,
            subject.source,
        )
        remarks = [str(subject.remarks.get(name, DASH)) for name in comparison.remarks]
        rows.append([subject.name, *(text or DASH for text in texts), *remarks])
    heads = ["Name", "Series", "Version", "Model", "Commit", "Created", "Note", "Source"]
    yield ReportTable("Compared entries", [*heads, *comparison.remarks], rows)


def pair_tables(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield a table per candidate with the primary metric of each pair."""
    for contrast in comparison.decisive:
        if not contrast.pairs:
            continue
        name, metric = comparison.of(contrast.candidate).name, contrast.metric
        rest = len(contrast.pairs) - MAX_PAIRS
        stored = _are_stored(comparison, contrast)
        yield ReportTable(
            f"{metric}, pair by pair: {name} against {comparison.baseline.name}",
            ["Pair", "Difference", comparison.baseline.name, name],
            [
                [
                    row.pair,
                    format_difference(metric, row.difference),
                    format_value(metric, row.baseline),
                    format_value(metric, row.candidate),
                ]
                for row in contrast.pairs[:MAX_PAIRS]
            ],
            f"The JSON output has {rest:,} more pairs." if rest > 0 else "",
            links={
                index: _pair_anchor(contrast, row.pair)
                for index, row in enumerate(contrast.pairs[:MAX_PAIRS])
                if stored
            },
        )


def _are_stored(comparison: Comparison, contrast: Contrast) -> bool:
    """Return whether the trials of both are in the database."""
    both = (comparison.of(id).subject for id in (contrast.baseline, contrast.candidate))
    return all(subject.source == "store" for subject in both)


def _pair_anchor(contrast: Contrast, pair: str) -> str:
    return f"pair-{derive_id(contrast.candidate, pair)}"


def episode_tables(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the table of episodes in each pair, with the command that shows each."""
    for contrast in comparison.decisive:
        if not contrast.pairs or not _are_stored(comparison, contrast):
            continue
        both = [comparison.of(id).subject for id in (contrast.baseline, contrast.candidate)]
        trials: dict[str, list[tuple[Subject, TrialOutcome]]] = {
            row.pair: [] for row in contrast.pairs[:MAX_PAIRS]
        }
        for subject in both:
            for trial in subject.trials:
                if trial.pair in trials:
                    trials[trial.pair].append((subject, trial))
        all_trials = [trial for pair_trials in trials.values() for _, trial in pair_trials]
        first_rows = accumulate([0, *map(len, [*trials.values()][:-1])])
        heads = [
            name
            for name in _EPISODE_METRICS
            if any(trial.values.get(name) for trial in all_trials)
        ]
        heads = list(dict.fromkeys([comparison.setup.primary, *heads]))
        yield ReportTable(
            f"Episodes of each pair: {both[1].name} against {both[0].name}",
            ["Pair", "Name", *heads, "Command"],
            [
                [
                    pair,
                    subject.name,
                    *(_format_trial_value(head, trial.values.get(head)) for head in heads),
                    _show_command(subject, trial),
                ]
                for pair, pair_trials in trials.items()
                for subject, trial in pair_trials
            ],
            anchors=dict(
                zip(first_rows, (_pair_anchor(contrast, pair) for pair in trials), strict=True)
            ),
        )


def _format_trial_value(metric: str, number: float | None) -> str:
    """Format a value of one trial; counts have no decimals."""
    measured = outcome_of(metric).unit in (Unit.DOLLARS, Unit.SECONDS)
    if number is not None and number == int(number) and not measured:
        return f"{number:,.0f}"
    return format_value(metric, number)


_EPISODE_METRICS = (
    "achievements",
    "reward",
    "steps",
    "turns",
    "tokens",
    "cost_usd",
    "duration_s",
)
_SHORT_ID = 12


def _show_command(subject: Subject, trial: TrialOutcome) -> str:
    """Return the command that shows a trial, or replays it if it is in Crafter."""
    how = "replay" if (trial.task or "").startswith("crafter/") else "show"
    words = ["assay", "traces", how, trial.trial_id[:_SHORT_ID], *database_option(subject)]
    return shlex.join(words)


def cost_table(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the table of cost per trial next to the primary metric."""
    metric = comparison.setup.primary
    heads = {"cost_usd": "Cost per trial", "duration_s": "Time per trial", "tokens": "Tokens"}
    priced = [
        name
        for name in heads
        if name != metric and any(name in facts.metrics for facts in comparison.subjects)
    ]
    if priced:
        yield ReportTable(
            f"{metric} and cost",
            ["Name", metric, *(heads[name] for name in priced)],
            [
                [
                    _mark_name(facts),
                    *(
                        mean_cell(
                            name, facts.metrics[name].mean if name in facts.metrics else None
                        )
                        for name in (metric, *priced)
                    ),
                ]
                for facts in comparison.subjects
            ],
            f"Means with about {level_text(comparison.setup.level)} intervals.",
        )


def curves_table(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the table of learning curves with their ends, if a file has some."""
    rows: list[Row] = [
        [
            facts.name,
            curve.metric,
            format_count(len(curve.steps)),
            *map(format_number, (curve.steps[-1], curve.values[0], curve.values[-1])),
        ]
        for facts in comparison.subjects
        for curve in facts.curves
    ]
    if rows:
        heads = ["Name", "Metric", "Points", "Last step", "First value", "Last value"]
        yield ReportTable("Learning curves", heads, rows)
