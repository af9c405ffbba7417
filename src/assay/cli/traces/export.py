"""`assay traces export`: sessions into files."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from assay.cli.database import Database, open_store
from assay.cli.output import Show, say, say_json
from assay.cli.traces.counting import counting
from assay.traces.location import DEFAULT_DATABASE

__all__ = ["export"]


def export(
    *names: str,
    form: Annotated[
        Literal["json", "jsonl", "parquet", "atif"], Parameter(name="--format")
    ] = "json",
    output: Path = Path("traces_export"),
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Write sessions into files that need no database.

    json has one file per session and jsonl one line; both are complete, and 'assay
    traces import' gives back the same rows. parquet has one file per table. atif is
    Harbor's format of trajectories, one file per session. best, worst and latest are
    words for sessions.

    For example:

        assay traces export best --format json --output best.json

    Args:
        names: Sessions, experiments or runs, by id or name; all if there is none.
        form: The format of the files.
        output: A folder, made if missing; for jsonl, or for one session, also a file.
        database: The store to read.
        show: What to print.
    """
    from assay import api

    with counting(show, "exporting") as progress:
        written = api.export(
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
        say(f"{_count(written.sessions, 'session')} in {where}")
        if form == "atif":
            from assay.exchange.formats import ATIF_DROPS

            say(f"ATIF has no place for {ATIF_DROPS}; --format json keeps all")
    return 0


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
