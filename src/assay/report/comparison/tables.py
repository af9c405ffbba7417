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
from assay.report.comparison.next_steps import in_database
from assay.report.document import ReportTable, Row
from assay.report.numbers import (
    DASH,
    change,
    count,
    digits_like,
    level_text,
    mean_cell,
    p_number,
    plain,
    share_cell,
    value,
)

MOST_PAIRS = 200
"""Maximum number of pairs in a table; the JSON output has all of them."""


def values(comparison: Comparison, metrics: Sequence[str]) -> Iterator[ReportTable]:
    """Yield a table per metric: mean, median, spread and range of each subject."""
    for metric in metrics:
        rows = [
            _described(facts, metric)
            for facts in comparison.subjects
            if metric in facts.metrics
        ]
        heads = ["Name", "Trials", "Mean", "Median", "SD", "Lowest", "Highest"]
        judged = sum(facts.judged for facts in comparison.subjects)
        if rows:
            note = "* played only to compare with." if judged < len(rows) else ""
            yield ReportTable(metric, heads, rows, note)


def _described(facts: SubjectFacts, metric: str) -> Row:
    numbers = facts.metrics[metric]
    marks = (numbers.median, numbers.sd, numbers.least, numbers.most)
    return [
        _marked(facts),
        count(numbers.n),
        mean_cell(metric, numbers.mean),
        *(value(metric, mark, digits_like(numbers.mean)) for mark in marks),
    ]


def _marked(facts: SubjectFacts) -> str:
    return facts.name if facts.judged else f"{facts.name}*"


def scores(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the tables of Crafter scores, if episodes record their unlocks."""
    if not comparison.scores:
        return
    at = comparison.scores[0].at
    yield ReportTable(
        "Crafter score (%)",
        ["Name", "Episodes", "Score", f"At {at:,} episodes", "Corrected"],
        [
            [
                _marked(comparison.of(row.subject)),
                count(row.n),
                mean_cell("", row.interval),
                plain(row.matched),
                plain(row.corrected),
            ]
            for row in comparison.scores
        ],
        "The score grows with the number of episodes: read across only the column that takes"
        f" {at:,} episodes of each. Corrected is the jackknife's guess at very many episodes."
        " The interval is conservative: it allows for achievements that come together.",
    )
    if comparison.score_gaps:
        yield ReportTable(
            f"Crafter score less that of {comparison.baseline.name}",
            ["Name", "At episodes", "Difference", "Of endless episodes"],
            [
                [
                    _marked(comparison.of(gap.subject)),
                    count(gap.episodes),
                    mean_cell("", gap.interval, signed=True),
                    mean_cell("", gap.limit, signed=True),
                ]
                for gap in comparison.score_gaps
            ],
            f"In brackets: {_about(comparison, at)}intervals, not adjusted for their number.",
        )


def _about(comparison: Comparison, episodes: int) -> str:
    """Format the level of score intervals; it was not measured below five episodes."""
    return f"{'about ' if episodes < 5 else ''}{level_text(comparison.setup.level)} "


def instances(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the tables of success and time by task, if trials record them."""
    if not comparison.instances:
        return
    enough = plain(comparison.setup.success_achievements).removesuffix(".00")
    timed = any(row.times for row in comparison.instances)
    heads = ["Task", "Name", "Trials", "Successes", "Success rate"]
    note = (
        f"A success: {enough} achievements or more, unless the trial says itself whether it was"
        f" one. In brackets: about {level_text(comparison.setup.level)} intervals, exact for"
        " success where each world was played once; trials of a world count once."
    )
    if timed:
        heads += ["Half by", "Mean time", "No success", "p of times"]
        note += (
            " Half by: when half of all trials had come to success; a dash: fewer than half"
            " did. A trial that ended without success does not come to it later. Mean time:"
            " with such trials at the longest time of the task. p: log-rank test against the"
            " first name, not adjusted; none where a world was played twice. Times are"
            f" {_units(comparison)}."
        )
    rows = [_instance(comparison, row, timed=timed) for row in comparison.instances]
    yield ReportTable("Success and time by task", heads, rows, note)
    if comparison.passes:
        about = "" if min(row.worlds for row in comparison.passes) >= _MANY_WORLDS else "about "
        yield ReportTable(
            "Success in k attempts at a world",
            ["Name", "k", "pass@k", "pass^k", "Worlds", "Attempts"],
            [
                [
                    _marked(comparison.of(row.subject)),
                    count(row.k),
                    share_cell(row.pass_any),
                    share_cell(row.pass_all),
                    count(row.worlds),
                    count(row.attempts),
                ]
                for row in comparison.passes
            ],
            "pass@k: the chance that at least one of k attempts succeeds; pass^k: that all k"
            f" do. In brackets: {about}{level_text(comparison.setup.level)} intervals over"
            " worlds.",
        )


_MANY_WORLDS = 20
"""From this number of worlds on, intervals of pass@k were measured to keep their level."""


def _units(comparison: Comparison) -> str:
    steps = any(row.unit == "steps" for row in comparison.instances)
    return "steps to the achievement that made it a success" if steps else "those of trials"


def _instance(comparison: Comparison, row: InstanceRow, *, timed: bool) -> Row:
    without = f"{row.without:,} of {len(row.times):,}" if row.times else DASH
    metric = "steps" if row.unit == "steps" else "duration_s"
    times = [
        value(metric, row.median_time),
        mean_cell(metric, row.mean_time),
        without,
        DASH if row.p_value is None else p_number(row.p_value),
    ]
    return [
        row.task,
        _marked(comparison.of(row.subject)),
        count(row.n),
        count(row.successes),
        share_cell(row.success),
        *(times if timed else ()),
    ]


def whole(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the table of values for whole subjects, if any; their spread is unknown."""
    names = list(dict.fromkeys(name for facts in comparison.subjects for name in facts.whole))
    if names:
        yield ReportTable(
            "Numbers of all trials together",
            ["Name", *names],
            [
                [facts.name, *(value(name, facts.whole.get(name)) for name in names)]
                for facts in comparison.subjects
            ],
            "Made by metrics that take all trials at once: one number each, which has no"
            " interval and is not judged.",
        )


def ends(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the table of reasons for which trials ended, if known."""
    counts = {facts.name: endings(facts.subject.trials) for facts in comparison.subjects}
    reasons = list(dict.fromkeys(reason for own in counts.values() for reason in own))
    if reasons:
        rows: list[Row] = [
            [name, *(f"{own.get(reason, 0):,}" for reason in reasons)]
            for name, own in counts.items()
        ]
        yield ReportTable("How many trials ended by what", ["Name", *reasons], rows)


def versions(comparison: Comparison) -> Iterator[ReportTable]:
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
        own = [str(subject.remarks.get(name, DASH)) for name in comparison.remarks]
        rows.append([subject.name, *(text or DASH for text in texts), *own])
    heads = ["Name", "Series", "Version", "Model", "Commit", "Created", "Note", "Source"]
    yield ReportTable("Who was compared", [*heads, *comparison.remarks], rows)


def pairs(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield a table per candidate with the primary metric of each pair."""
    for contrast in comparison.decisive:
        if not contrast.pairs:
            continue
        name, metric = comparison.of(contrast.candidate).name, contrast.metric
        rest = len(contrast.pairs) - MOST_PAIRS
        stored = _stored(comparison, contrast)
        yield ReportTable(
            f"{metric}, pair by pair: {name} against {comparison.baseline.name}",
            ["Pair", "Difference", comparison.baseline.name, name],
            [
                [
                    row.pair,
                    change(metric, row.difference),
                    value(metric, row.baseline),
                    value(metric, row.candidate),
                ]
                for row in contrast.pairs[:MOST_PAIRS]
            ],
            f"{rest:,} more pairs are in the JSON output." if rest > 0 else "",
            links={
                place: _anchor(contrast, row.pair)
                for place, row in enumerate(contrast.pairs[:MOST_PAIRS])
                if stored
            },
        )


def _stored(comparison: Comparison, contrast: Contrast) -> bool:
    """Return whether the trials of both are in the database."""
    both = (comparison.of(id).subject for id in (contrast.baseline, contrast.candidate))
    return all(subject.source == "store" for subject in both)


def _anchor(contrast: Contrast, pair: str) -> str:
    return f"pair-{derive_id(contrast.candidate, pair)}"


def episodes(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the table of episodes in each pair, with the command that shows each."""
    for contrast in comparison.decisive:
        if not contrast.pairs or not _stored(comparison, contrast):
            continue
        both = [comparison.of(id).subject for id in (contrast.baseline, contrast.candidate)]
        trials: dict[str, list[tuple[Subject, TrialOutcome]]] = {
            row.pair: [] for row in contrast.pairs[:MOST_PAIRS]
        }
        for subject in both:
            for trial in subject.trials:
                if trial.pair in trials:
                    trials[trial.pair].append((subject, trial))
        found = [trial for plays in trials.values() for _, trial in plays]
        firsts = accumulate([0, *map(len, [*trials.values()][:-1])])
        heads = [name for name in _FACTS if any(trial.values.get(name) for trial in found)]
        heads = list(dict.fromkeys([comparison.setup.primary, *heads]))
        yield ReportTable(
            f"The episodes of each pair: {both[1].name} against {both[0].name}",
            ["Pair", "Player", *heads, "Command to see it"],
            [
                [
                    pair,
                    subject.name,
                    *(_exact(head, trial.values.get(head)) for head in heads),
                    _look(subject, trial),
                ]
                for pair, plays in trials.items()
                for subject, trial in plays
            ],
            anchors=dict(
                zip(firsts, (_anchor(contrast, pair) for pair in trials), strict=True)
            ),
        )


def _exact(metric: str, number: float | None) -> str:
    """Format a value of one trial; counts have no decimals."""
    measured = outcome_of(metric).unit in (Unit.DOLLARS, Unit.SECONDS)
    if number is not None and number == int(number) and not measured:
        return f"{number:,.0f}"
    return value(metric, number)


_FACTS = ("achievements", "reward", "steps", "turns", "tokens", "cost_usd", "duration_s")
_SHORT_ID = 12


def _look(subject: Subject, trial: TrialOutcome) -> str:
    """Return the command that shows a trial, or replays it if it is in Crafter."""
    how = "replay" if (trial.task or "").startswith("crafter/") else "show"
    words = ["assay", "traces", how, trial.trial_id[:_SHORT_ID], *in_database(subject)]
    return shlex.join(words)


def cost(comparison: Comparison) -> Iterator[ReportTable]:
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
            f"{metric} and what it costs",
            ["Name", metric, *(heads[name] for name in priced)],
            [
                [
                    _marked(facts),
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


def curves(comparison: Comparison) -> Iterator[ReportTable]:
    """Yield the table of learning curves with their ends, if a file has some."""
    rows: list[Row] = [
        [
            facts.name,
            curve.metric,
            count(len(curve.steps)),
            *map(plain, (curve.steps[-1], curve.values[0], curve.values[-1])),
        ]
        for facts in comparison.subjects
        for curve in facts.curves
    ]
    if rows:
        heads = ["Name", "Metric", "Points", "Last step", "First value", "Last value"]
        yield ReportTable("Learning curves", heads, rows)
