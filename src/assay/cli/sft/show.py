"""`assay sft show`: one row of a data file."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from assay.cli.numbers import Whole
from assay.cli.output import Show, say, say_json
from assay.cli.sft.words import say_masks

__all__ = ["show_"]


def show_(
    file: Path,
    row: Whole = 1,
    /,
    *,
    full: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    show: Show = Show(),
) -> int:
    """Show one row message by message, and which of its messages are trained.

    For example:

        assay sft show data.jsonl 17 --full

    Args:
        file: A data file of any format that 'assay sft filter' writes.
        row: The row, counted from 1.
        full: Show what is said in full.
        show: What to print.
    """
    from assay import api

    shown = api.sft_show(file, row)
    if show.json:
        say_json(
            {
                "row": row,
                "format": shown.form,
                "tools": shown.tools,
                "messages": [
                    {"role": mask.role, "text": mask.text, "trained": mask.trained}
                    for mask in shown.masks
                ],
                "origin": None if shown.origin is None else shown.origin._asdict(),
            }
        )
        return 0
    if not show.quiet:
        said = f"row {row} of {file}, format {shown.form}"
        if shown.tools:
            said += f", tools {', '.join(shown.tools)}"
        say(said)
        if shown.origin is not None:
            origin = shown.origin
            say(
                f"from session {origin.session_id}, turn {origin.first_turn}; "
                f"reward {origin.reward:g}"
            )
    say_masks(shown.masks, full=full)
    return 0
