"""`assay compare`: which of several is better, by how much, and how sure that is."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from assay.cli.database import Database, open_store
from assay.cli.numbers import Whole
from assay.cli.output import Show, complain, say, say_json, say_report, warn
from assay.errors import UsageError
from assay.traces.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.experiments.subjects import Subject
    from assay.judge import Comparison
    from assay.report import Document

__all__ = ["compare"]

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
    metrics: Annotated[str | None, Parameter(name=["--metrics", "--metric"])] = None,
    metrics_from: Path | None = None,
    output: Annotated[list[Path] | None, Parameter(negative="")] = None,
    success_achievements: float = 3,
    min_effect: float | None = None,
    level: float = 0.95,
    seed: Whole = 0,
    tasks: str | None = None,
    fail_if_worse: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    over_time: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Say which of several is better, by how much, and how sure that is.

    The first is the baseline, and the first metric decides. Trials on the same
    task and seed are compared with each other. Ten tasks or more are taken as a
    sample of tasks, fewer as the ones that are meant. The report also says what
    would settle a comparison that is undecided.

    For example:

        assay compare latest
        assay compare "gpt-4o-mini v1.0" "gpt-4o-mini v1.1" --output report.html
        assay compare --experiments experiments.json --output report.html
        assay compare --baseline old.json --improved new.json --metric reward
        assay compare gpt-4o-mini --over-time --output history.html

    Args:
        names: Experiments by id or name; a run, or latest, means all in it.
        experiments: A file of experiments to compare.
        baseline: A results file, or FILE#MODEL; else who to compare with.
        improved: A results file to compare with it; may be repeated.
        metrics: What to compare, separated by commas; the first decides.
        metrics_from: A Python file with metrics of your own.
        output: Where to write .html, .md, .json or .csv; may be repeated.
        success_achievements: So many achievements are a success.
        min_effect: The smallest difference of the first metric that matters.
        level: Of the intervals.
        seed: Of the random numbers that resampling draws.
        tasks: What several tasks are: fixed, or a sample of many.
        fail_if_worse: Exit with 1 if one is worse in the first metric.
        over_time: Follow one metric over the versions of a series.
        database: The store to read.
        show: What to print.
    """
    from assay import api
    from assay.report import check_endings, write_document
    from assay.report.comparison import comparison_document

    paths, wanted = tuple(output or ()), _metrics(metrics)
    check_endings(paths)
    if over_time:
        if experiments is not None or improved or baseline is not None:
            raise UsageError("--over-time follows a series of the store; name it, and no file")
        return _over_time(
            names, wanted, metrics_from, paths, level, seed, tasks, database, show
        )
    if names:
        _check_alone(experiments, improved)
        with _working(show, "reading"):
            subjects = api.stored_subjects(
                names,
                wanted or (),
                database=open_store(database, show),
                metrics_from=metrics_from,
                notice=warn,
            )
    else:
        subjects = _read(experiments, baseline, improved or [], metrics_from)
    with _working(show, "comparing"):
        comparison = api.compare(
            *subjects,
            metrics=wanted,
            baseline=None if improved else baseline,
            level=level,
            min_effect=min_effect,
            success_achievements=success_achievements,
            seed=seed,
            tasks=tasks,
        )
        document = comparison_document(comparison)
        write_document(document, *paths)
    _tell(document, paths, show)
    return _judgement(comparison) if fail_if_worse else 0


@contextmanager
def _working(show: Show, what: str) -> Iterator[None]:
    """Let the user see that something goes on, where somebody watches."""
    from rich.console import Console

    console = Console(stderr=True)
    if show.quiet or show.json or not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


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


def _tell(document: "Document", paths: tuple[Path, ...], show: Show) -> None:
    if show.json:
        say_json(document.values())
    elif paths or show.quiet:
        for line in document.summary:
            say(line)
        for path in () if show.quiet else paths:
            say(f"report: {path}")
    else:
        from assay.report.terminal import TerminalReport

        say_report(TerminalReport(document))


def _judgement(comparison: "Comparison") -> int:
    """1 if a candidate is worse, or could not be judged at all."""
    for contrast in comparison.worse:
        name = comparison.of(contrast.candidate).name
        complain(f"{name} is worse than {comparison.baseline.name} in {contrast.metric}")
    for reason in comparison.left_out.values():
        complain(f"cannot be judged: {reason}")
    return _FAILED if comparison.worse or comparison.left_out else 0


def _over_time(
    names: Sequence[str],
    metrics: Sequence[str] | None,
    metrics_from: Path | None,
    paths: tuple[Path, ...],
    level: float,
    seed: int,
    tasks: str | None,
    database: Path,
    show: Show,
) -> int:
    from assay import api
    from assay.report import write_document
    from assay.report.over_time import over_time_document

    if len(names) != 1:
        raise UsageError(
            "--over-time follows one series; name it ('assay experiments list' shows them)"
        )
    if metrics is not None and len(metrics) > 1:
        raise UsageError(f"--over-time follows one metric, not {len(metrics)}; name one")
    with _working(show, "comparing"):
        series = api.over_time(
            names[0],
            database=open_store(database, show),
            metric=metrics[0] if metrics else None,
            metrics_from=metrics_from,
            notice=warn,
            level=level,
            seed=seed,
            tasks=tasks,
        )
        document = over_time_document(series)
        write_document(document, *paths)
    _tell(document, paths, show)
    return 0
