"""`assay compare`: which of several is better, by how much, and how sure that is.

What is said of a plan that was registered.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from assay.cli.options import Database, open_store
from assay.cli.output import Show, complain, say, say_json, say_report, warn, working
from assay.cli.tables import Whole
from assay.errors import UsageError
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.api.training_runs import RegisteredPlan
    from assay.judge.results import Comparison
    from assay.judge.subjects import Subject
    from assay.report.document import Document


def say_registered(registered: "RegisteredPlan", show: Show) -> None:
    """Name the plan, and what of its metric the store had by then."""
    kept, first = registered
    if show.json:
        say_json(
            {
                "hash": kept.hash,
                "created_at": kept.created_at.isoformat(),
                "registered": first,
                "seen": list(kept.seen),
                "plan": dict(kept.plan),
            }
        )
        return
    when = f"{kept.created_at:%Y-%m-%d %H:%M:%S} UTC"
    say(f"plan {kept.hash} registered {when}" + ("" if first else ", before this"))
    if not show.quiet:
        say(f"{len(kept.seen)} {_WHAT[kept.plan.get('kind')]} then; what uses them says so")


_WHAT = {
    None: "runs with its metric were in the store",
    "comparison": "experiments had trials in the store",
}

_FAILED = 1
_ONE_SOURCE = (
    "compare either experiments of the store, or --experiments FILE, or --baseline FILE with"
    " --improved FILE"
)


def compare(
    *names: str,
    experiments: Path | None = None,
    baseline: str | None = None,
    improved: Annotated[list[str] | None, Parameter(negative="")] = None,
    metrics: Annotated[
        str | None,
        Parameter(
            name=["--metrics", "--metric"], show_default="all they share, achievements first"
        ),
    ] = None,
    metrics_from: Path | None = None,
    output: Annotated[list[Path] | None, Parameter(negative="")] = None,
    success_achievements: float = 3,
    min_effect: float | None = None,
    level: Annotated[float | None, Parameter(show_default="0.95")] = None,
    seed: Whole = 0,
    tasks: Annotated[
        str | None, Parameter(show_default="fixed below 10 tasks, else sample")
    ] = None,
    seeds: str | None = None,
    allow_different: Annotated[list[str] | None, Parameter(negative="")] = None,
    plan: Path | None = None,
    register: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    detail: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    fail_if_worse: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    over_time: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Say which of several is better, by how much, and how sure that is.

    The first name is the baseline; the first metric decides. Episodes with the same task
    and seed are compared pair by pair. If the task differs between them, such as in its
    limits, there is no verdict. The report answers four questions: is it better, by how
    much, how sure is that, and what would settle it.

    For example:

        assay compare latest
        assay compare "gpt-4o-mini v1.0" "gpt-4o-mini v1.1" --output report.html
        assay compare --experiments experiments.json --output report.html
        assay compare --baseline old.json --improved new.json --metric reward
        assay compare gpt-4o-mini --over-time --output history.html

    Args:
        names: Experiments: ids, names, or the start of one. A run, or 'latest', stands for
            all its experiments.
        experiments: A JSON file of experiments to compare; 'assay experiments export' writes
            one.
        baseline: With --improved: a results file, or FILE#MODEL for one model of it. With
            names: which of them is the baseline.
        improved: A results file to compare with the baseline. May be repeated.
        metrics: The metrics to compare, separated by commas; the first decides.
        metrics_from: A Python file with your own metrics.
        output: Write the report to this file: .html, .md, .json or .csv. May be repeated.
        success_achievements: An episode with this many achievements is a success.
        min_effect: The smallest difference in the first metric that matters to you.
        level: The confidence level of the intervals.
        seed: The seed for resampling.
        tasks: With several tasks: is the verdict about these tasks (fixed), or about all tasks
            like them (sample)? [choices: fixed, sample]
        seeds: Compare only the worlds with these seeds, such as 54-93.
        allow_different: Give a verdict although this setting of the task differs. May be
            repeated.
        plan: A TOML or JSON file with the planned metric and n; deviations are reported.
        register: Only store --plan, before the episodes are played.
        detail: Also print all tables, and how to read them.
        fail_if_worse: Exit with code 1 if one is worse than the baseline in the first metric.
        over_time: Follow one metric over all versions of a series.
        database: The store to read.
        show: What to print.
    """
    from assay import api
    from assay.report.comparison.document import comparison_document
    from assay.report.files import check_endings, write_document

    paths, wanted = tuple(output or ()), _metrics(metrics)
    check_endings(paths)
    if register:
        if plan is None or names or experiments or improved or baseline or wanted:
            raise UsageError("--register stores a plan and compares nothing; give --plan alone")
        say_registered(
            api.register_comparison_plan(plan, database=open_store(database, show)), show
        )
        return 0
    if over_time:
        if experiments is not None or improved or baseline is not None:
            raise UsageError("--over-time follows a series of the store; name it, and no file")
        return _over_time(
            names,
            wanted,
            paths,
            database,
            show,
            metrics_from=metrics_from,
            level=level or 0.95,
            seed=seed,
            tasks=tasks,
            allow_different=allow_different or (),
        )
    if names:
        _check_alone(experiments, improved)
        with working(show, "reading"):
            subjects = api.stored_subjects(
                names,
                wanted or (),
                database=open_store(database, show),
                metrics_from=metrics_from,
                notice=warn,
            )
    else:
        subjects = _read(experiments, baseline, improved or [], metrics_from)
    with working(show, "comparing"):
        comparison = api.compare(
            *subjects,
            metrics=wanted,
            baseline=None if improved else baseline,
            plan=plan,
            database=open_store(database, show) if plan else None,
            level=level if level is not None or plan else 0.95,
            min_effect=min_effect,
            success_achievements=success_achievements,
            seed=seed,
            tasks=tasks,
            allow_different=allow_different or (),
            seeds=_seeds(seeds),
        )
        document = comparison_document(comparison)
        write_document(document, *paths)
    _tell(document, paths, show, detail=detail)
    return judgement(comparison) if fail_if_worse else 0


def _metrics(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(
            f"--metrics {text!r} is not allowed; give names separated by commas, such as"
            " achievements,reward"
        )
    return names


def _seeds(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal()) or int(first) > int(
        last or first
    ):
        raise UsageError(f"--seeds {text!r} is not allowed; give first and last, such as 54-93")
    return int(first), int(last or first)


def _check_alone(experiments: Path | None, improved: Sequence[str] | None) -> None:
    if experiments is not None or improved:
        raise UsageError(_ONE_SOURCE)


def _read(
    experiments: Path | None,
    baseline: str | None,
    improved: Sequence[str],
    metrics_from: Path | None,
) -> "list[Subject]":
    """Subjects from files."""
    from assay import api

    if experiments is None and not improved:
        missing = "--improved FILE is missing" if baseline else "nothing to compare is named"
        raise UsageError(
            f"{missing}; name experiments of the store ('assay experiments list' shows them),"
            " or latest, or give --experiments FILE, or --baseline FILE with --improved FILE"
        )
    if metrics_from is not None:
        raise UsageError(
            "--metrics-from reads traces, and files of results have none; name experiments of"
            " the store"
        )
    if experiments is not None:
        if improved:
            raise UsageError(_ONE_SOURCE)
        return api.read_experiments(experiments)
    if baseline is None:
        raise UsageError("--improved needs a results file to compare with: --baseline FILE")
    return api.read_results(baseline, *improved)


def _tell(
    document: "Document", paths: tuple[Path, ...], show: Show, *, detail: bool = True
) -> None:
    if show.json:
        say_json(document.values())
    elif paths or show.quiet:
        for line in document.summary:
            say(line)
        for path in () if show.quiet else paths:
            say(f"report: {path}")
    else:
        from assay.report.terminal import TerminalReport

        say_report(TerminalReport(document, detail=detail))


def judgement(comparison: "Comparison") -> int:
    """1 if a candidate is worse, or could not be judged; says which, and why."""
    for contrast in comparison.worse:
        name = comparison.of(contrast.candidate).name
        complain(f"{name} is worse than {comparison.baseline.name} in {contrast.metric}")
    reasons = list(comparison.left_out.values())
    for contrast in comparison.decisive:
        name = comparison.of(contrast.candidate).name
        if contrast.same is not None:
            reasons.append(f"{name!r} and the baseline are the same: {contrast.same}")
        reasons += [
            f"{name!r} had another task than the baseline: {one.name} {one.candidate}, not"
            f" {one.baseline}"
            for one in contrast.confounds
        ]
    for reason in reasons:
        complain(f"cannot be judged: {reason}")
    return _FAILED if comparison.worse or reasons else 0


def _over_time(
    names: Sequence[str],
    metrics: Sequence[str] | None,
    paths: tuple[Path, ...],
    database: Path,
    show: Show,
    **choices: Any,
) -> int:
    from assay import api
    from assay.report.files import write_document
    from assay.report.over_time import over_time_document

    if len(names) != 1:
        raise UsageError(
            "--over-time follows one series; name it ('assay experiments list' shows them)"
        )
    if metrics is not None and len(metrics) > 1:
        raise UsageError(f"--over-time follows one metric, not {len(metrics)}; name one")
    with working(show, "comparing"):
        series = api.over_time(
            names[0],
            database=open_store(database, show),
            metric=metrics[0] if metrics else None,
            notice=warn,
            **choices,
        )
        document = over_time_document(series)
        write_document(document, *paths)
    _tell(document, paths, show)
    return 0
