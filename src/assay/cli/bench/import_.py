"""`assay bench import`: rollouts of other machines."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from assay.cli.bench.options import DEFAULT_DATA_DIR, DataDir
from assay.cli.output import Show, complain, say, say_json

__all__ = ["import_"]


def import_(
    *folders: Path,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    database: Annotated[Path | None, Parameter(show_default=False)] = None,
    show: Show = Show(),
) -> int:
    """Copy rollouts of other machines here, with the folders of their runs.

    Nothing that is here is overwritten: a rollout that is here already is left as it is, and
    one whose stamp is taken gets the next that is free. A rollout that is damaged or not whole
    is refused by name, and the others are copied; the exit code is then 1. A job of Harbor
    becomes a rollout, and its trials are stored as sessions.

    For example:

        assay bench import /mnt/other/data
        assay bench import /mnt/other/data/rollouts/my_benchmark/20250824__12-34-56
        assay bench import jobs/2026-01-02__03-04-05

    Args:
        folders: Rollout folders, or folders above them, such as another data folder; or
            folders of jobs of Harbor.
        data_dir: Where to.
        database: The DuckDB file for the trials of Harbor.
        show: What to print.
    """
    from assay import api

    found = api.bench_import(*folders, data_dir=data_dir, database=database)
    if show.json:
        say_json(
            {
                "imported": [
                    {
                        "source": str(each.source),
                        "rollout": each.rollout.label,
                        "path": str(each.rollout.path),
                        "added": each.added,
                    }
                    for each in found.imported
                ],
                "refused": [
                    {"source": str(each.source), "reason": each.reason}
                    for each in found.refused
                ],
                "sessions": found.sessions,
            }
        )
    else:
        for refused in found.refused:
            complain(f"{refused.source}: {refused.reason}")
        for each in () if show.quiet else found.imported:
            what = "imported as" if each.added else "here already as"
            say(f"{each.source}: {what} {each.rollout.label}")
    return 1 if found.refused else 0
