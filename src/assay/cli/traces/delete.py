"""`assay traces delete`: sessions that are not wanted any more."""

from assay.cli.database import Database, open_store
from assay.cli.deleting import DryRun, Yes, delete_when_agreed
from assay.cli.output import Show
from assay.traces.location import DEFAULT_DATABASE

__all__ = ["delete"]


def delete(
    *names: str,
    dry_run: DryRun = False,
    yes: Yes = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Delete sessions with their steps, outcomes, files, and messages nobody else uses.

    With the last session of an experiment the experiment goes too, and with the last
    experiment of a run the run. A run that is being played is refused. The space in
    the file is used again by what comes next.

    For example:

        assay traces delete worst --dry-run

    Args:
        names: Sessions, experiments or runs: ids, names, or the start of one; or best,
            worst or latest.
        dry_run: Only say what would be deleted.
        yes: Delete without asking.
        database: The store to change.
        show: What to print.
    """
    from assay import api

    store = open_store(database, show)
    return delete_when_agreed(
        lambda dry: api.delete_sessions(*names, dry_run=dry, database=store),
        dry_run=dry_run,
        yes=yes,
        show=show,
    )
