"""`assay traces`: list, verify, export, import, merge and delete recorded episodes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from assay.cli.experiments import DryRun, Yes, confirm_and_delete
from assay.cli.options import Database, Flag, Given, add_commands, open_store, option_groups
from assay.cli.output import (
    OutputOptions,
    print_error,
    print_json,
    print_line,
    show_compilation,
    show_progress_bar,
)
from assay.cli.show import replay, show_
from assay.cli.tables import Whole, print_table, print_wrapped
from assay.core.text import counted, cut
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.episodes.replay import Verification
    from assay.store.imports import SkippedSource
    from assay.store.queries import ListedRun, ListedSession, OpenRun


def delete(
    *names: str,
    dry_run: DryRun = False,
    yes: Yes = False,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Delete episodes with their steps, results, files and unshared messages.

    An experiment is deleted with its last episode, and a run with its last experiment. A run
    that is still in progress cannot be deleted. Later runs reuse the freed space in the file.

    For example:

        assay traces delete worst --dry-run

    Args:
        names: Episodes, experiments or runs: ids, names, or the start of one; or 'best',
            'worst' (one episode) or 'latest' (the latest run).
        dry_run: Print what would be deleted without deleting it.
        yes: Delete without asking for confirmation.
        database: DuckDB file to change.
        show: Output options.
    """
    from assay.api.traces import delete_sessions

    store = open_store(database, show)
    return confirm_and_delete(
        lambda dry: delete_sessions(*names, dry_run=dry, database=store),
        dry_run=dry_run,
        yes=yes,
        show=show,
    )


def export(
    *names: str,
    form: Annotated[
        Literal["json", "jsonl", "parquet", "atif"], Parameter(name="--format")
    ] = "json",
    output: Path = Path("traces_export"),
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Write recorded episodes to files that other programs can read.

    json writes one file per episode, jsonl one line per episode. Both are complete, and
    'assay traces import' can read them. parquet writes one file per table. atif is
    Harbor's trajectory format, with one file per episode.

    For example:

        assay traces export best --format json --output best.json

    Args:
        names: Episodes, experiments or runs: ids, names, or the start of one; or 'best',
            'worst' (one episode) or 'latest' (the latest run). Without names: all episodes.
        form: File format.
        output: Folder to write to, created if missing. For jsonl, or for one episode, it may
            be a file.
        database: DuckDB file to read.
        show: Output options.
    """
    from assay.api.traces import export

    with show_progress_bar(show, "exporting") as progress:
        written = export(
            *names,
            output=output,
            format=form,
            database=open_store(database, show),
            progress=progress,
        )
    if show.json:
        print_json(
            {"sessions": written.sessions, "files": [str(path) for path in written.files]}
        )
    elif show.quiet:
        print_line(str(output))
    else:
        where = written.files[0] if len(written.files) == 1 else f"{output}/"
        print_line(f"{counted(written.sessions, 'episode')} in {where}")
        if form == "atif":
            from assay.store.formats.atif import ATIF_DROPS

            print_line(f"ATIF cannot contain {ATIF_DROPS}; --format json keeps everything")
    return 0


def import_(
    *paths: Path,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Import episodes from assay files and from logs of other programs.

    Supported are files from 'assay traces export' and from runs, Harbor and BALROG folders,
    ATIF trajectories and Inspect logs (.eval, .json). The format is detected automatically.
    Episodes from other programs can be shown and compared, but not replayed.

    Importing a file twice has no effect. Damaged files are reported and the others are
    imported; the exit code is then 1.

    For example:

        assay traces import traces_multi_model --database all.duckdb

    Args:
        paths: Files (.json, .jsonl, .eval), or folders with such files.
        database: DuckDB file to write to, created if missing.
        show: Output options.
    """
    from assay.api.traces import import_traces

    with show_progress_bar(show, "importing") as progress:
        report = import_traces(*paths, database=open_store(database, show), progress=progress)
    if show.json:
        damaged = [{"where": bad.where, "reason": bad.reason} for bad in report.damaged]
        unverifiable = [item._asdict() for item in report.unverifiable]
        print_json(
            {
                "added": report.added,
                "present": report.present,
                "damaged": damaged,
                "unverifiable": unverifiable,
                "skipped": [item._asdict() for item in report.skipped],
            }
        )
    else:
        for bad in report.damaged:
            print_error(f"{bad.where}: {bad.reason}")
        if not show.quiet:
            print_line(
                f"{report.added} added to {database}, {report.present} already present, "
                f"{len(report.damaged)} damaged"
            )
            for item in report.unverifiable:
                print_line(f"{item.sessions} of them cannot be verified: {item.reason}")
            for reason, places in _group_by_reason(report.skipped).items():
                others = f" and {len(places) - 1} more" if len(places) > 1 else ""
                print_line(f"skipped: {places[0]}{others}: {reason}")
    return 1 if report.damaged else 0


def _group_by_reason(skipped: Sequence["SkippedSource"]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for source in skipped:
        reasons.setdefault(source.reason, []).append(source.where)
    return reasons


_COUNTS = ("reward", "steps", "turns")
_TEXT_COLUMNS = ("episode", "experiment", "task", "ended by")
_MAX_OUTCOMES = 4
_MAX_WIDTH = 40
_SHORT_ID = 10
_MAX_UNFINISHED = 20


@option_groups(filters="assay.store.options:SessionFilters")
def list_(
    *,
    filters: Given,
    sort: str | None = None,
    top: Annotated[Whole | None, Parameter(validator=Number(gte=1))] = None,
    limit: Annotated[Whole, Parameter(validator=Number(gte=1))] = 20,
    baselines: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """List recorded episodes by run, the newest last, or sorted by a metric.

    For example:

        assay traces list --model builtin/expert --sort reward --top 5

    Args:
        filters: Filters for episodes.
        sort: Sort by this value, the highest first: achievements, reward, steps, turns,
            cost_usd, duration_s, seed, or any metric.
        top: List only this many episodes, the best by --sort or by achievements.
        limit: Maximum number of episodes to list.
        baselines: Also list episodes of baselines that were added to runs; --json always
            lists them.
        database: DuckDB file to read.
        show: Output options.
    """
    from assay.api.traces import list_sessions

    if top is not None:
        sort, limit = sort or "achievements", top
    total, runs, unfinished, hidden = list_sessions(
        limit=limit,
        sort=sort,
        baselines=baselines or show.json,
        database=open_store(database, show),
        **filters,
    )
    if show.json:
        print_json(
            {
                "total": total,
                "runs": [asdict(listed) for listed in runs],
                "unfinished": [asdict(run) for run in unfinished],
            }
        )
        return 0
    if sort is None or show.quiet:
        for listed in runs:
            _print_run(listed, show)
    elif runs:
        _print_sessions([session for listed in runs for session in listed.sessions], sort)
    for run in () if show.quiet or sort is not None else unfinished:
        _print_unfinished(run)
    if not total:
        print_line("no episodes")
    elif total > limit and not show.quiet:
        print_wrapped(
            f"{limit} of {total} episodes; {'--limit' if top is None else '--top'} shows more"
        )
    if hidden and not show.quiet:
        print_wrapped(
            f"{counted(hidden, 'episode')} of baselines not listed; --baselines shows them"
        )
    return 0


def _print_run(run: "ListedRun", show: OutputOptions) -> None:
    if show.quiet:
        for session in run.sessions:
            print_line(session.session_id)
        return
    print_wrapped(
        f"run {run.run_id}, {run.status}, started {run.created_at} UTC: {run.command}"
    )
    _print_sessions(run.sessions)
    print_line("")


def _print_unfinished(run: "OpenRun") -> None:
    how = f"'{run.resume}' resumes it"
    if run.process is not None:
        how = f"process {run.process} is running it"
    print_wrapped(f"run {run.run_id} is unfinished; {how}. Open episodes: {len(run.sessions)}")
    for session in run.sessions[:_MAX_UNFINISHED]:
        seed = "" if session.seed is None else f", seed {session.seed}"
        print_wrapped(
            f"  {session.session_id[:_SHORT_ID]}  {cut(session.model, _MAX_WIDTH)}{seed}: "
            f"{session.turns} turns, {session.steps} steps"
        )
    if len(run.sessions) > _MAX_UNFINISHED:
        print_line(f"  and {len(run.sessions) - _MAX_UNFINISHED} more")
    print_line("")


def _choose_result_columns(sessions: Sequence["ListedSession"], sort: str | None) -> list[str]:
    """Return the result columns of sessions: achievements, or the outcomes they declare."""
    from assay.judge.outcomes import OUTCOMES

    if any(session.achievements or session.task.startswith("crafter/") for session in sessions):
        columns = ["achievements"]
    else:
        names = dict.fromkeys(name for session in sessions for name in session.outcomes)
        columns = [name for name in names if name not in _COUNTS and "/" not in name]
        # Outcomes that only these sessions have come before common ones.
        columns = sorted(columns, key=lambda name: name in OUTCOMES)[:_MAX_OUTCOMES]
    return columns if sort is None or sort in (*columns, *_COUNTS) else [sort, *columns]


def _format_cells(
    session: "ListedSession", columns: Sequence[str], *, task: bool
) -> tuple[str, ...]:
    ended = session.stop_reason
    if session.state != "result":
        ended = f"{session.state}: {ended}"
    return (
        session.session_id[:_SHORT_ID],
        cut(session.experiment, _MAX_WIDTH),
        *([cut(session.task, _MAX_WIDTH)] if task else []),
        "" if session.seed is None else str(session.seed),
        cut(ended, _MAX_WIDTH),
        *(_format_value(session, name) for name in columns),
        f"{session.reward:.1f}",
        str(session.steps),
        str(session.turns),
    )


def _format_value(session: "ListedSession", name: str) -> str:
    if name == "achievements":
        return str(session.achievements)
    value = session.outcomes.get(name)
    return "-" if value is None else f"{value:.6g}"


def _print_sessions(sessions: Sequence["ListedSession"], sort: str | None = None) -> None:
    columns = _choose_result_columns(sessions, sort)
    shown = [cut(name, _MAX_WIDTH) for name in columns]
    task = len({session.task for session in sessions}) > 1
    heads = (
        *("episode", "experiment", *(["task"] if task else [])),
        *("seed", "ended by", *shown, *_COUNTS),
    )
    print_table(
        heads,
        [_format_cells(session, columns, task=task) for session in sessions],
        _TEXT_COLUMNS,
    )


def merge(
    *others: Path,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Copy all episodes from other databases into one.

    The other databases are not changed. Merging a database twice has no effect. An experiment
    whose name is already in use gets the next number.

    For example:

        assay traces merge monday.duckdb tuesday.duckdb --database week.duckdb

    Args:
        others: DuckDB files to copy from.
        database: DuckDB file to copy into, created if missing.
        show: Output options.
    """
    from assay.api.traces import merge

    with show_progress_bar(show, "merging") as progress:
        merged = merge(
            *(open_store(other, show) for other in others),
            database=open_store(database, show),
            progress=progress,
        )
    if show.json:
        print_json(
            {
                "database": str(database),
                "added": merged.added,
                "present": merged.present,
                "renamed": dict(merged.renamed),
            }
        )
    elif not show.quiet:
        print_line(f"{merged.added} added to {database}, {merged.present} already present")
        for old, new in merged.renamed.items():
            print_line(f"experiment {old} was renamed to {new}, because the name is in use")
    return 0


def snapshot(
    output: Path,
    *,
    force: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Copy the database, to read it while a run is writing to it.

    The copy does not contain unfinished episodes.

    For example:

        assay traces snapshot now.duckdb

    Args:
        output: File to write.
        force: Replace the file if it exists.
        database: DuckDB file to copy.
        show: Output options.
    """
    from assay.api.traces import snapshot

    taken = snapshot(output, force=force, database=open_store(database, show))
    if show.json:
        print_json(
            {
                "snapshot": str(output),
                "sessions": taken.sessions,
                "open_journals": taken.open_journals,
            }
        )
    elif show.quiet:
        print_line(str(output))
    else:
        print_line(f"{counted(taken.sessions, 'episode')} in {output}")
        if taken.open_journals:
            print_line(f"{counted(taken.open_journals, 'unfinished episode')} not copied")
    return 0


_MAX_LINES = 20


def verify(
    *names: str,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Replay recorded episodes and compare every step with the recording.

    No model is called. The exit code is 1 if any episode differs.

    For example:

        assay traces verify
        assay traces verify best

    Args:
        names: Episodes, experiments or runs: ids, names, or the start of one; or 'best',
            'worst' (one episode) or 'latest' (the latest run). Without names: all episodes.
        database: DuckDB file to read.
        show: Output options.
    """
    from assay.api.traces import verify

    store = open_store(database, show)
    with show_compilation(show):
        from assay.crafter.world import warmup

        warmup()
    with show_progress_bar(show, "verifying") as progress:
        verifications = verify(*names, database=store, progress=progress)
    return print_verifications(verifications, show)


def print_verifications(verifications: Sequence["Verification"], show: OutputOptions) -> int:
    """Print which episodes differ, and return the exit code."""
    from assay.episodes.replay import Finding

    counts = Counter(verification.finding for verification in verifications)
    steps = sum(verification.steps for verification in verifications)
    different = [
        verification
        for verification in verifications
        if verification.finding is Finding.DIFFERENT
    ]
    unverifiable = [
        verification
        for verification in verifications
        if verification.finding is Finding.UNVERIFIABLE
    ]
    if show.json:
        print_json(
            {
                "sessions": len(verifications),
                "steps": steps,
                **{str(finding): counts[finding] for finding in Finding},
                "differences": {e.session_id: str(e.difference) for e in different},
                "reasons": {e.session_id: e.reason for e in unverifiable},
            }
        )
        return 1 if different else 0
    _print_limited(
        [
            f"different     {verification.session_id}  {verification.difference}"
            for verification in different
        ]
    )
    if not show.quiet:
        _print_limited(
            [
                f"unverifiable  {verification.session_id}  {verification.reason}"
                for verification in unverifiable
            ]
        )
    print_line(
        f"{counted(len(verifications), 'episode')}, {counted(steps, 'step')}:"
        f" {counts[Finding.SAME]} identical, "
        f"{len(different)} different, {len(unverifiable)} unverifiable"
    )
    return 1 if different else 0


def _print_limited(lines: Sequence[str]) -> None:
    for line in lines[:_MAX_LINES]:
        print_line(line)
    if len(lines) > _MAX_LINES:
        print_line(f"... and {len(lines) - _MAX_LINES} more; --json lists all")


traces = App(
    name="traces",
    help="""List, show, replay, verify, export and import recorded episodes.

For example:

    assay traces show best
""",
    help_format="plaintext",
)
add_commands(traces, list_, show_, replay, verify, export, import_, merge, snapshot, delete)
