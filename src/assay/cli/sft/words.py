"""What commands about a data file print alike: lengths, and what is trained of a row."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay._util.text import cut, printable

if TYPE_CHECKING:
    from assay.datasets.masks import RowMask
    from assay.datasets.validation import ValidationReport

__all__ = ["length_lines", "say_masks", "tokens"]

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


def say_masks(masks: Sequence["RowMask"], *, full: bool) -> None:
    """Print the messages of a row, what is trained in green and marked."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for mask in masks:
        mark = "trained" if mask.trained else "context"
        style = "green" if mask.trained else "dim"
        if full:
            head = Text(f"── {mask.role}, {mark}, ~{mask.tokens:,} tokens", style="bold")
            console.print(head)
            for line in mask.text.splitlines():
                console.print(Text(printable(line), style=style), soft_wrap=True)
        else:
            said = cut(" ".join(mask.text.split()), _BRIEF)
            line = f"  {mask.role:<9} {mark}  ~{mask.tokens:>6,}  {said}"
            console.print(Text(line, style=style), soft_wrap=True)
