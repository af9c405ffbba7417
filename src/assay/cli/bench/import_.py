"""`assay bench import`: rollouts of other machines."""

from pathlib import Path

from assay.cli.bench.options import DEFAULT_DATA_DIR, DataDir
from assay.cli.output import Show, complain, say, say_json

__all__ = ["import_"]


def import_(
    *folders: Path,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    show: Show = Show(),
) -> int:
    """Copy rollouts of other machines here, with the folders of their runs.

    Nothing that is here is overwritten: a rollout that is here already is left as it is, and
    one whose stamp is taken gets the next that is free. A rollout that is damaged or not whole
    is refused by name, and the others are copied; the exit code is then 1.

    For example:

        assay bench import /mnt/other/data
        assay bench import /mnt/other/data/rollouts/my_benchmark/20250824__12-34-56

    Args:
        folders: Rollout folders, or folders above them, such as another data folder.
        data_dir: Where to.
        show: What to print.
    """
    from assay import api

    found = api.bench_import(*folders, data_dir=data_dir)
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
            }
        )
    else:
        for refused in found.refused:
            complain(f"{refused.source}: {refused.reason}")
        for each in () if show.quiet else found.imported:
            what = "imported as" if each.added else "here already as"
            say(f"{each.source}: {what} {each.rollout.label}")
    return 1 if found.refused else 0
