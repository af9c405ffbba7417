"""`assay traces snapshot`: a copy to read while a run goes on."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from assay._util.text import counted
from assay.cli.database import Database, open_store
from assay.cli.output import Show, say, say_json
from assay.traces.location import DEFAULT_DATABASE

__all__ = ["snapshot"]


def snapshot(
    output: Path,
    *,
    force: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Copy the store, for reading while a run is writing to it.

    Unfinished episodes are not in the copy.

    For example:

        assay traces snapshot now.duckdb

    Args:
        output: The file to write.
        force: Replace an existing file.
        database: The store to copy.
        show: What to print.
    """
    from assay import api

    taken = api.snapshot(output, force=force, database=open_store(database, show))
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
