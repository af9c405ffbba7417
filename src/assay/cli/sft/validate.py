"""`assay sft validate`: check a data file before it is trained on."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from assay._util.text import counted
from assay.cli.numbers import Whole
from assay.cli.output import Show, say, say_json
from assay.cli.sft.words import length_lines, say_trained, tokens
from assay.cli.traces.counting import counting
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.datasets.validation import ValidationReport

__all__ = ["validate"]


def validate(
    file: Path,
    /,
    *,
    max_tokens: Annotated[
        Whole | None, Parameter(validator=Number(gte=1), show_default=False)
    ] = None,
    holdout_seeds: Annotated[str | None, Parameter(show_default=False)] = None,
    tokenizer: Annotated[Path | None, Parameter(show_default="estimates")] = None,
    chat_template: Annotated[
        Path | None, Parameter(show_default="beside the tokenizer")
    ] = None,
    epochs: Annotated[Whole, Parameter(validator=Number(gte=1))] = 3,
    price: Annotated[float | None, Parameter(show_default=False)] = None,
    show: Show = Show(),
) -> int:
    """Check a data file: JSON, roles, tool calls, lengths, secrets, duplicates and leaks.

    Reads every format that 'assay sft filter' writes, as JSON Lines or Parquet, and
    says which messages are trained. Of each kind of problem the first lines are named.
    The exit code is 1 if there is an error, and 0 if there are warnings alone.

    For example:

        assay sft validate data.jsonl --max-tokens 8192

    Args:
        file: The file to check.
        max_tokens: A row with more tokens is an error.
        holdout_seeds: Worlds that must not be in it, such as 42,50-59, beside those that
            its manifest names.
        tokenizer: The tokenizer.json of the model to train, a local file. Needs 'pip install
            tokenizers'.
        chat_template: The chat_template.jinja of the model to train, or the
            tokenizer_config.json that holds it. Shows which of its text is trained. Needs
            'pip install jinja2'.
        epochs: How often training goes through the file, for the estimate of its cost.
        price: Dollars for a million trained tokens, as your provider lists them.
        show: What to print.
    """
    from assay import api

    with counting(show, "checking rows") as progress:
        report = api.sft_validate(
            file,
            max_tokens=max_tokens,
            holdout_seeds=holdout_seeds,
            tokenizer=tokenizer,
            chat_template=chat_template,
            progress=progress,
        )
    if show.json:
        say_json(_as_json(report))
        return 0 if report.ok else 1
    _say(report, epochs, price, show)
    if not show.quiet and report.lengths is not None:
        _say_example(report.path, tokenizer, chat_template)
    return 0 if report.ok else 1


def _say(report: "ValidationReport", epochs: int, price: float | None, show: Show) -> None:
    errors = [finding for finding in report.findings if finding.is_error]
    rows = counted(report.rows, "row")
    if errors:
        say(f"{report.path} should not be trained on as it is: {counted(len(errors), 'kind')} "
            f"of errors in {rows}")  # fmt: skip
    else:
        forms = ", ".join(report.forms)
        say(f"{report.path} can be trained on: {rows} of the format {forms}, no errors")
    for finding in report.findings:
        word = "error" if finding.is_error else "warning"
        say(f"{word}: {finding.kind}, {finding.count:,} times")
        for line, words in finding.first:
            say(f"  {f'line {line}: ' if line else ''}{words}")
        if finding.count > len(finding.first):
            say(f"  and {finding.count - len(finding.first):,} more")
    if show.quiet or report.lengths is None:
        return
    say("")
    for text in length_lines(report):
        say(text)
    total = report.lengths.total * epochs
    cost = ""
    if price is not None:
        cost = f", about ${total / 1e6 * price:,.2f} at ${price:g} a million"
    say(f"{counted(epochs, 'epoch')}: {tokens(total, report)} tokens{cost}")
    say(
        f"looked for held-out seeds: {', '.join(map(str, report.checked_against))}"
        if report.checked_against
        else "no held-out seeds are known to look for; --holdout-seeds names some"
    )
    if report.templated:
        say(f"the first {counted(report.templated, 'row')} were written with the chat template")


def _say_example(path: Path, tokenizer: Path | None, chat_template: Path | None) -> None:
    from assay import api

    try:
        shown = api.sft_show(path, 1, tokenizer=tokenizer, chat_template=chat_template)
    except UsageError:
        return
    say("")
    say("what is trained, in row 1:")
    say_trained(shown, full=False)


def _as_json(report: "ValidationReport") -> dict[str, object]:
    return {
        **asdict(report),
        "path": str(report.path),
        "ok": report.ok,
        "findings": [
            {**asdict(finding), "error": finding.is_error} for finding in report.findings
        ],
    }
