"""`assay traces merge`: several stores into one."""

from pathlib import Path

from assay.cli.database import Database, open_store
from assay.cli.output import Show, say, say_json
from assay.cli.traces.counting import counting
from assay.traces.location import DEFAULT_DATABASE

__all__ = ["merge"]


def merge(
    *others: Path,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Copy all episodes of other stores into one store.

    The other stores are not changed. Merging twice adds nothing. An experiment whose name is
    already taken gets the next number.

    For example:

        assay traces merge monday.duckdb tuesday.duckdb --database week.duckdb

    Args:
        others: The stores to copy from.
        database: The store to copy into, made if missing.
        show: What to print.
    """
    from assay import api

    with counting(show, "merging") as progress:
        merged = api.merge(
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
