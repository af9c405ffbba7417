"""`assay sft show`: one row of a data file."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from assay.cli.numbers import Whole
from assay.cli.output import Show, say, say_json
from assay.cli.sft.words import say_trained

__all__ = ["show_"]


def show_(
    file: Path,
    row: Whole = 1,
    /,
    *,
    full: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    tokenizer: Annotated[Path | None, Parameter(show_default="estimates")] = None,
    chat_template: Annotated[
        Path | None, Parameter(show_default="beside the tokenizer")
    ] = None,
    show: Show = Show(),
) -> int:
    """Show one row message by message, and which of its messages are trained.

    For example:

        assay sft show data.jsonl 17 --full

    Args:
        file: A data file of any format that 'assay sft filter' writes.
        row: The row, counted from 1.
        full: Show what is said in full.
        tokenizer: The tokenizer.json of the model to train, a local file. Needs 'pip install
            tokenizers'.
        chat_template: The chat_template.jinja of the model to train, or the
            tokenizer_config.json that holds it. Shows which of its text is trained. Needs
            'pip install jinja2'.
        show: What to print.
    """
    from assay import api

    shown = api.sft_show(file, row, tokenizer=tokenizer, chat_template=chat_template)
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
                "rendered": None
                if shown.rendering is None
                else {
                    "template": str(shown.rendering.template),
                    "marked": shown.rendering.marked,
                    "parts": [
                        {"text": part.text, "trained": part.trained, "tokens": part.tokens}
                        for part in shown.rendering.parts
                    ],
                },
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
    say_trained(shown, full=full)
    return 0
