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
    """Delete episodes with their steps, results, files and unshared messages.

    When the last episode of an experiment is deleted, so is the experiment, and with the
    last experiment the run. A run that is still being played cannot be deleted. The freed
    space in the file is used by later runs.

    For example:

        assay traces delete worst --dry-run

    Args:
        names: Episodes, experiments or runs: ids, names, or the start of one; or 'best',
            'worst' or 'latest', which name one episode.
        dry_run: Only print what would be deleted.
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
