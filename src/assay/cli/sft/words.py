"""What commands about a data file print alike: lengths, and what is trained of a row."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay._util.text import cut, printable
from assay.cli.output import say

if TYPE_CHECKING:
    from assay.api.data_files import ShownRow
    from assay.datasets.masks import RowMask
    from assay.datasets.validation import ValidationReport

__all__ = ["length_lines", "say_trained", "tokens"]

_BAR = 40
_BRIEF = 100


def tokens(number: int, report: "ValidationReport") -> str:
    """A number of tokens, marked where it is an estimate."""
    return f"{'' if report.tokenizer else '~'}{number:,}"


def length_lines(report: "ValidationReport") -> list[str]:
    """How long rows are, with a histogram."""
    lengths = report.lengths
    if lengths is None:
        return []
    counts = [count for _, count in lengths.histogram]
    first = next(place for place, count in enumerate(counts) if count)
    most = max(counts)
    lines = [
        f"{tokens(lengths.total, report)} tokens, {tokens(lengths.trained, report)} of them "
        f"trained: {report.answers:,} answers; {report.untrained_answers:,} more are context",
        f"a row has {tokens(lengths.shortest, report)} to {tokens(lengths.longest, report)} "
        f"tokens, half of them up to {tokens(lengths.median, report)}, 95% up to "
        f"{tokens(lengths.p95, report)}",
    ]
    for bound, count in lengths.histogram[first:]:
        bar = "█" * max(round(_BAR * count / most), 1 if count else 0)
        lines.append(f"  up to {tokens(bound, report):>10}  {count:>9,}  {bar}".rstrip())
    lines.append(
        "~ is an estimate, four characters to a token; 'sft validate --tokenizer FILE' counts"
        if report.tokenizer is None
        else f"counted by {printable(report.tokenizer)}, without what a chat template adds"
    )
    return lines


def say_trained(shown: "ShownRow", *, full: bool) -> None:
    """Print what is trained of a row, as a chat template writes it if there is one."""
    if shown.not_rendered:
        say(f"not shown as the chat template writes it: {printable(shown.not_rendered)}")
    if shown.rendering is None:
        _say_masks(shown.masks, full=full, estimated=shown.estimated)
        return
    how = "it marks them itself" if shown.rendering.marked else "found by blanking each answer"
    name = printable(shown.rendering.template.name)
    trained, whole = (
        sum(part.tokens for part in shown.rendering.parts if part.trained or not only)
        for only in (True, False)
    )
    about = "~" if shown.estimated else ""
    say(f"as {name} writes it: {about}{trained:,} of {about}{whole:,} tokens trained; {how}")
    _say_masks(shown.rendering.parts, full=full, estimated=shown.estimated)


def _say_masks(masks: Sequence["RowMask"], *, full: bool, estimated: bool) -> None:
    """Print the messages of a row, what is trained in green and marked."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    about = "~" if estimated else ""
    for mask in masks:
        mark = "trained" if mask.trained else "context"
        style = "green" if mask.trained else "dim"
        if full:
            names = ", ".join(filter(None, (mask.role, mark)))
            head = Text(f"── {names}, {about}{mask.tokens:,} tokens", style="bold")
            console.print(head)
            for line in mask.text.splitlines():
                console.print(Text(printable(line), style=style), soft_wrap=True)
        else:
            size = f"{about}{mask.tokens:,}"
            if mask.role:
                said = f"{mask.role:<9} {mark} {size:>7}  {_brief(mask.text)}"
            else:
                said = f"{mark} {size:>7}  {_ends(mask.text, console.width - 20)}"
            brief = Text(f"  {said}", style=style)
            console.print(brief, no_wrap=True, overflow="ellipsis")


def _brief(text: str) -> str:
    """The beginning of a text, on one line."""
    return cut(" ".join(text.split()), _BRIEF)


def _ends(text: str, width: int) -> str:
    """The beginning and the end of a text, on one line that shows where lines end."""
    whole = printable(text.replace("\n", "↵"))
    half = (max(width, 20) - 3) // 2
    return whole if len(whole) <= width else f"{whole[:half]} … {whole[-half:]}"
