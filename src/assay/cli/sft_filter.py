"""`assay sft` and `assay sft filter`: write training data from recorded episodes."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Group, Parameter

from assay.cli.options import Database, Flag, Given, add_commands, open_store, option_groups
from assay.cli.output import (
    OutputOptions,
    command_line,
    print_json,
    print_line,
    show_progress_bar,
)
from assay.cli.sft_files import show_, stats, trace, validate
from assay.cli.tables import print_table
from assay.core.text import counted
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.finetune.datasets.build import BuiltDataset

_EPISODES_GROUP = Group("Which episodes", sort_key=1)
_ROWS_GROUP = Group("Which rows", sort_key=2)


@option_groups(
    {"filters": _EPISODES_GROUP, "rows": _ROWS_GROUP},
    filters="assay.finetune.datasets.options:EpisodeFilters",
    rows="assay.finetune.datasets.options:RowOptions",
)
def filter_(
    *,
    output: Path = Path("sft_data.jsonl"),
    input_dir: Annotated[Path | None, Parameter(show_default=False)] = None,
    database: Database = DEFAULT_DATABASE,
    stats_only: Flag = False,
    filters: Given,
    rows: Given,
    card: Annotated[bool, Parameter(negative="--no-card")] = True,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Write requests and replies from selected episodes as training data.

    The number of episodes that each filter removes is printed. An episode without the value
    that a filter needs does not pass it. A manifest next to the data file records the origin
    of each row.

    For example:

        assay sft filter --min-achievements 3 --top 20% --output data.jsonl
        assay sft filter --sql "steps < 500 AND model LIKE 'gpt%'" --stats-only

    Args:
        output: File to write.
        input_dir: Read files in this folder, such as traces_v2_synth, instead of the database.
        database: DuckDB file to read.
        stats_only: Print the result of the filters without writing anything.
        filters: Filters for episodes.
        rows: Conversion of episodes to rows.
        card: Also write a data card in Markdown, with figures.
        show: Output options.
    """
    from assay.api.sft import sft_filter

    with show_progress_bar(show, "reading turns") as progress:
        built = sft_filter(
            None if stats_only else output,
            input_dir=input_dir,
            database=open_store(database, show),
            card=card,
            command=shlex.join(("assay", *command_line.get())),
            progress=progress,
            **filters,
            **rows,
        )
    if show.json:
        print_json(_to_json(built))
    elif show.quiet:
        print_line(str(built.path) if built.path else f"{built.left.episodes} episodes")
    else:
        _print_result(built)
    return 0


def _print_result(built: "BuiltDataset") -> None:
    if built.path is not None:
        print_line(
            f"{counted(built.rows, 'row')} of {_format_episode_count(built)} in {built.path}"
        )
        if built.holdout_path is not None:
            held_out = len(built.worlds.get("holdout", ()))
            print_line(
                f"{counted(built.holdout_rows, 'row')} of {counted(held_out, 'held-out world')}"
                f" in {built.holdout_path}"
            )
        if built.card is not None:
            print_line(f"data card: {built.card}")
        print_line(
            f"worlds recorded in {built.noted_in}; 'run' and 'compare' warn about them"
            if built.noted_in
            else "worlds could not be recorded in a database; the manifest lists them"
        )
        print_line(
            f"manifest: {built.manifest}; 'assay sft trace FILE ROW' shows the origin of a row"
        )
    else:
        print_line(f"{_format_episode_count(built)} would remain")
    print_line("")
    print_table(*format_funnel(built), left=("step", ""))
    if built.path is not None:
        from assay.api.sft import measure_peak_memory

        rows = built.rows + built.holdout_rows
        speed = rows / max(built.seconds, 1e-9)
        print_line("")
        print_line(
            f"{speed:,.0f} rows per second, {built.seconds:.1f} s; "
            f"peak memory {measure_peak_memory() / 2**20:,.0f} MiB"
        )


def _format_episode_count(built: "BuiltDataset") -> str:
    worlds = sum(map(len, built.worlds.values()))
    return f"{counted(built.left.episodes, 'episode')} in {counted(worlds, 'world')}"


def format_funnel(built: "BuiltDataset") -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the heads and rows of the filter table: removed and remaining, per filter."""
    heads = ("step", "removed", "turns", "tokens", "left", "turns", "tokens", "")
    left = [built.found.episodes, built.found.turns, built.found.tokens]
    rows: list[Sequence[str]] = [("found", "", "", "", *(f"{n:,}" for n in left), "")]
    for step in built.funnel:
        removed = (step.removed.episodes, step.removed.turns, step.removed.tokens)
        left = [
            before - removed_count for before, removed_count in zip(left, removed, strict=True)
        ]
        unknown = f"{step.missing:,} without a value" if step.missing else ""
        rows.append(
            (
                step.name,
                *(f"-{n:,}" if n else "0" for n in removed),
                *(f"{n:,}" for n in left),
                unknown,
            )
        )
    return heads, rows


def _to_json(built: "BuiltDataset") -> dict[str, object]:
    values = asdict(built)
    for name in ("path", "holdout_path", "manifest", "card", "noted_in"):
        values[name] = None if values[name] is None else str(values[name])
    return values


sft = App(
    name="sft",
    help="""Write training data from recorded episodes, and check it.

For example:

    assay sft filter --min-achievements 3 --output data.jsonl
""",
    help_format="plaintext",
)
add_commands(sft, filter_, validate, stats, show_, trace)
