"""`assay traces import`: sessions from files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.cli.database import Database, open_store
from assay.cli.output import Show, complain, say, say_json
from assay.cli.traces.counting import counting
from assay.traces.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.exchange.sources import SkippedSource

__all__ = ["import_"]


def import_(
    *paths: Path,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Import episodes from files of assay and from the logs of other programs.

    It reads what 'assay traces export' or a run wrote, folders of Harbor and BALROG, ATIF
    trajectories and Inspect logs (.eval, .json); it detects the format by itself. Episodes
    of other programs can be shown and compared, but not replayed.

    Importing twice adds nothing. A damaged file is reported and the rest is imported; the
    exit code is then 1.

    For example:

        assay traces import traces_multi_model --database all.duckdb

    Args:
        paths: Files (.json, .jsonl, .eval), or folders with such files.
        database: The store to write, made if missing.
        show: What to print.
    """
    from assay import api

    with counting(show, "importing") as progress:
        report = api.import_traces(
            *paths, database=open_store(database, show), progress=progress
        )
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
