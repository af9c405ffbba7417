"""`assay traces export`: sessions into files."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from assay._util.text import counted
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
    """Write recorded episodes to files that other programs can read.

    json writes one file per episode, jsonl one line per episode; both are complete, and
    'assay traces import' reads them back. parquet writes one file per table. atif is
    Harbor's trajectory format, one file per episode.

    For example:

        assay traces export best --format json --output best.json

    Args:
        names: Episodes, experiments or runs: ids, names, or the start of one; or 'best',
            'worst' or 'latest', which name one episode. Without names: all episodes.
        form: The format of the files.
        output: The folder to write to, made if missing. For jsonl, or for one episode, it may
            be a file.
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
        say(f"{counted(written.sessions, 'episode')} in {where}")
        if form == "atif":
            from assay.exchange.formats import ATIF_DROPS

            say(f"ATIF has no place for {ATIF_DROPS}; --format json keeps all")
    return 0
