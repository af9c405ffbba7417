"""`assay traces`: list, verify, export, import, merge and delete recorded episodes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from assay.cli.experiments import DryRun, Yes, delete_when_agreed
from assay.cli.options import Database, Flag, Given, add_commands, open_store, option_groups
from assay.cli.output import Show, compiling_shown, complain, counting, say, say_json
from assay.cli.show import replay, show_
from assay.cli.tables import Whole, say_prose, say_table
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
    show: Show = Show(),
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
    return delete_when_agreed(
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
    show: Show = Show(),
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

    with counting(show, "exporting") as progress:
        written = export(
            *names,
            output=output,
            format=form,
            database=open_store(database, show),
            progress=progress,
        )
    if show.json:
        say_json({"sessions": written.sessions, "files": [str(path) for path in written.files]})
    elif show.quiet:
        say(str(output))
    else:
        where = written.files[0] if len(written.files) == 1 else f"{output}/"
        say(f"{counted(written.sessions, 'episode')} in {where}")
        if form == "atif":
            from assay.store.formats.atif import ATIF_DROPS

            say(f"ATIF has no place for {ATIF_DROPS}; --format json keeps all")
    return 0


def import_(
    *paths: Path,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
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

    with counting(show, "importing") as progress:
        report = import_traces(*paths, database=open_store(database, show), progress=progress)
    if show.json:
        damaged = [{"where": bad.where, "reason": bad.reason} for bad in report.damaged]
        unverifiable = [each._asdict() for each in report.unverifiable]
        say_json(
            {
                "added": report.added,
                "present": report.present,
                "damaged": damaged,
                "unverifiable": unverifiable,
                "skipped": [each._asdict() for each in report.skipped],
            }
        )
    else:
        for bad in report.damaged:
            complain(f"{bad.where}: {bad.reason}")
        if not show.quiet:
            say(
                f"{report.added} added to {database}, {report.present} there already, "
                f"{len(report.damaged)} damaged"
            )
            for each in report.unverifiable:
                say(f"{each.sessions} of them cannot be verified: {each.reason}")
            for reason, places in _by_reason(report.skipped).items():
                others = f" and {len(places) - 1} more" if len(places) > 1 else ""
                say(f"skipped: {places[0]}{others}: {reason}")
    return 1 if report.damaged else 0


def _by_reason(skipped: Sequence["SkippedSource"]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for each in skipped:
        reasons.setdefault(each.reason, []).append(each.where)
    return reasons


_COUNTS = ("reward", "steps", "turns")
_LEFT = ("episode", "experiment", "task", "ended by")
_MOST_OUTCOMES = 4
_WIDEST = 40
_SHORT_ID = 10
_MOST_OPEN = 20


@option_groups(only="assay.store.options:SessionFilters")
def list_(
    *,
    only: Given,
    sort: str | None = None,
    top: Annotated[Whole | None, Parameter(validator=Number(gte=1))] = None,
    limit: Annotated[Whole, Parameter(validator=Number(gte=1))] = 20,
    baselines: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """List recorded episodes by run, the newest last, or sorted by a metric.

    For example:

        assay traces list --model builtin/expert --sort reward --top 5

    Args:
        only: Filters for episodes.
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
    total, runs, unfinished, beside = list_sessions(
        limit=limit,
        sort=sort,
        baselines=baselines or show.json,
        database=open_store(database, show),
        **only,
    )
    if show.json:
        say_json(
            {
                "total": total,
                "runs": [asdict(listed) for listed in runs],
                "unfinished": [asdict(left) for left in unfinished],
            }
        )
        return 0
    if sort is None or show.quiet:
        for listed in runs:
            _say_run(listed, show)
    elif runs:
        _say_table([session for listed in runs for session in listed.sessions], sort)
    for left in () if show.quiet or sort is not None else unfinished:
        _say_open(left)
    if not total:
        say("no episodes")
    elif total > limit and not show.quiet:
        say_prose(
            f"{limit} of {total} episodes; {'--limit' if top is None else '--top'} shows more"
        )
    if beside and not show.quiet:
        say_prose(
            f"{counted(beside, 'episode')} of baselines not listed; --baselines shows them"
        )
    return 0


def _say_run(run: "ListedRun", show: Show) -> None:
    if show.quiet:
        for session in run.sessions:
            say(session.session_id)
        return
    say_prose(f"run {run.run_id}, {run.status}, started {run.created_at} UTC: {run.command}")
    _say_table(run.sessions)
    say("")


def _say_open(run: "OpenRun") -> None:
    how = f"'{run.resume}' resumes it"
    if run.process is not None:
        how = f"process {run.process} is playing it"
    say_prose(f"run {run.run_id} is unfinished; {how}. Open episodes: {len(run.sessions)}")
    for session in run.sessions[:_MOST_OPEN]:
        seed = "" if session.seed is None else f", seed {session.seed}"
        say_prose(
            f"  {session.session_id[:_SHORT_ID]}  {cut(session.model, _WIDEST)}{seed}: "
            f"{session.turns} turns, {session.steps} steps"
        )
    if len(run.sessions) > _MOST_OPEN:
        say(f"  and {len(run.sessions) - _MOST_OPEN} more")
    say("")


def _earned(sessions: Sequence["ListedSession"], sort: str | None) -> list[str]:
    """Return the result columns of sessions: achievements, or the outcomes they declare."""
    from assay.judge.outcomes import OUTCOMES

    if any(session.achievements or session.task.startswith("crafter/") for session in sessions):
        own = ["achievements"]
    else:
        names = dict.fromkeys(name for session in sessions for name in session.outcomes)
        own = [name for name in names if name not in _COUNTS and "/" not in name]
        # Outcomes that only these sessions have come before common ones.
        own = sorted(own, key=lambda name: name in OUTCOMES)[:_MOST_OUTCOMES]
    return own if sort is None or sort in (*own, *_COUNTS) else [sort, *own]


def _cells(session: "ListedSession", earned: Sequence[str], *, task: bool) -> tuple[str, ...]:
    ended = session.stop_reason
    if session.state != "result":
        ended = f"{session.state}: {ended}"
    return (
        session.session_id[:_SHORT_ID],
        cut(session.experiment, _WIDEST),
        *([cut(session.task, _WIDEST)] if task else []),
        "" if session.seed is None else str(session.seed),
        cut(ended, _WIDEST),
        *(_number(session, name) for name in earned),
        f"{session.reward:.1f}",
        str(session.steps),
        str(session.turns),
    )


def _number(session: "ListedSession", name: str) -> str:
    if name == "achievements":
        return str(session.achievements)
    value = session.outcomes.get(name)
    return "-" if value is None else f"{value:.6g}"


def _say_table(sessions: Sequence["ListedSession"], sort: str | None = None) -> None:
    earned = _earned(sessions, sort)
    shown = [cut(name, _WIDEST) for name in earned]
    task = len({session.task for session in sessions}) > 1
    heads = (
        *("episode", "experiment", *(["task"] if task else [])),
        *("seed", "ended by", *shown, *_COUNTS),
    )
    say_table(heads, [_cells(session, earned, task=task) for session in sessions], _LEFT)


def merge(
    *others: Path,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
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

    with counting(show, "merging") as progress:
        merged = merge(
            *(open_store(other, show) for other in others),
            database=open_store(database, show),
            progress=progress,
        )
    if show.json:
        say_json(
            {
                "database": str(database),
                "added": merged.added,
                "present": merged.present,
                "renamed": dict(merged.renamed),
            }
        )
    elif not show.quiet:
        say(f"{merged.added} added to {database}, {merged.present} there already")
        for old, new in merged.renamed.items():
            say(f"experiment {old} is {new} here, because the name was taken")
    return 0


def snapshot(
    output: Path,
    *,
    force: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
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
        say_json(
            {
                "snapshot": str(output),
                "sessions": taken.sessions,
                "open_journals": taken.open_journals,
            }
        )
    elif show.quiet:
        say(str(output))
    else:
        say(f"{counted(taken.sessions, 'episode')} in {output}")
        if taken.open_journals:
            say(f"{taken.open_journals} are still in their journals and not part of it")
    return 0


_MAX_LINES = 20


def verify(
    *names: str,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
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
    with compiling_shown(show):
        from assay.crafter.world import warmup

        warmup()
    with counting(show, "verifying") as progress:
        verifications = verify(*names, database=store, progress=progress)
    return _report(verifications, show)


def _report(found: Sequence["Verification"], show: Show) -> int:
    from assay.episodes.replay import Finding

    counts = Counter(each.finding for each in found)
    steps = sum(each.steps for each in found)
    different = [each for each in found if each.finding is Finding.DIFFERENT]
    unverifiable = [each for each in found if each.finding is Finding.UNVERIFIABLE]
    if show.json:
        say_json(
            {
                "sessions": len(found),
                "steps": steps,
                **{str(finding): counts[finding] for finding in Finding},
                "differences": {e.session_id: str(e.difference) for e in different},
                "reasons": {e.session_id: e.reason for e in unverifiable},
            }
        )
        return 1 if different else 0
    _list([f"different     {each.session_id}  {each.difference}" for each in different])
    if not show.quiet:
        _list([f"unverifiable  {each.session_id}  {each.reason}" for each in unverifiable])
    say(
        f"{counted(len(found), 'episode')}, {counted(steps, 'step')}:"
        f" {counts[Finding.SAME]} the same, "
        f"{len(different)} different, {len(unverifiable)} unverifiable"
    )
    return 1 if different else 0


def _list(lines: Sequence[str]) -> None:
    for line in lines[:_MAX_LINES]:
        say(line)
    if len(lines) > _MAX_LINES:
        say(f"... and {len(lines) - _MAX_LINES} more; '--json' has them all")


traces = App(
    name="traces",
    help="""List, show, replay, verify, export and import recorded episodes.

For example:

    assay traces show best
""",
    help_format="plaintext",
)
add_commands(traces, list_, show_, replay, verify, export, import_, merge, snapshot, delete)
