"""`assay sft show`, `stats`, `trace` and `validate`: inspect and check a data file."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from assay.cli.options import Flag, Given, open_store, option_groups
from assay.cli.output import (
    OutputOptions,
    find_program,
    print_json,
    print_line,
    show_compilation,
    show_progress_bar,
)
from assay.cli.tables import Whole
from assay.core.text import counted, cut, printable
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.sft_files import ShownRow, TracedRow
    from assay.finetune.datasets.chat_template import RowMask
    from assay.finetune.datasets.validate import ValidationReport

_WITH_TOKENIZER = option_groups(files="assay.finetune.datasets.options:TokenizerOptions")
_BAR_WIDTH = 40
_MAX_TEXT = 100


def format_tokens(number: int, report: "ValidationReport") -> str:
    """Format a number of tokens, with a ~ if it is an estimate."""
    return f"{'' if report.tokenizer else '~'}{number:,}"


def format_lengths(report: "ValidationReport") -> list[str]:
    """Format the lengths of rows, with a histogram."""
    lengths = report.lengths
    if lengths is None:
        return []
    counts = [count for _, count in lengths.histogram]
    first = next(place for place, count in enumerate(counts) if count)
    most = max(counts)
    lines = [
        f"{format_tokens(lengths.total, report)} tokens,"
        f" {format_tokens(lengths.trained, report)} of them trained: "
        f"{report.answers:,} answers; {report.untrained_answers:,} more are context",
        f"tokens per row: {format_tokens(lengths.shortest, report)} to "
        f"{format_tokens(lengths.longest, report)}, median "
        f"{format_tokens(lengths.median, report)}, 95th percentile "
        f"{format_tokens(lengths.p95, report)}",
    ]
    for bound, count in lengths.histogram[first:]:
        bar = "█" * max(round(_BAR_WIDTH * count / most), 1 if count else 0)
        lines.append(f"  up to {format_tokens(bound, report):>10}  {count:>9,}  {bar}".rstrip())
    lines.append(
        "~ is an estimate (four characters per token); 'sft validate --tokenizer FILE' counts"
        if report.tokenizer is None
        else f"counted by {printable(report.tokenizer)}, without the tokens of a chat template"
    )
    return lines


def print_trained_parts(shown: "ShownRow", *, full: bool) -> None:
    """Print which parts of a row are trained, rendered with the chat template if available."""
    if shown.not_rendered:
        print_line(f"not rendered with the chat template: {printable(shown.not_rendered)}")
    if shown.rendering is None:
        _print_messages(shown.masks, full=full, estimated=shown.estimated)
        return
    method = (
        "marked by the template" if shown.rendering.marked else "found by blanking each answer"
    )
    name = printable(shown.rendering.template.name)
    trained, total = (
        sum(part.tokens for part in shown.rendering.parts if part.trained or not only)
        for only in (True, False)
    )
    about = "~" if shown.estimated else ""
    print_line(
        f"rendered with {name}: {about}{trained:,} of {about}{total:,} tokens trained; {method}"
    )
    _print_messages(shown.rendering.parts, full=full, estimated=shown.estimated)


def _print_messages(masks: Sequence["RowMask"], *, full: bool, estimated: bool) -> None:
    """Print the messages of a row; trained ones are green and marked."""
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
                line = f"{mask.role:<9} {mark} {size:>7}  {_shorten(mask.text)}"
            else:
                line = f"{mark} {size:>7}  {_shorten_middle(mask.text, console.width - 20)}"
            brief = Text(f"  {line}", style=style)
            console.print(brief, no_wrap=True, overflow="ellipsis")


def _shorten(text: str) -> str:
    """Return the beginning of a text on one line."""
    return cut(" ".join(text.split()), _MAX_TEXT)


def _shorten_middle(text: str, width: int) -> str:
    """Return the beginning and the end of a text on one line, with line ends marked."""
    line = printable(text.replace("\n", "↵"))
    half = (max(width, 20) - 3) // 2
    return line if len(line) <= width else f"{line[:half]} … {line[-half:]}"


@_WITH_TOKENIZER
def show_(
    file: Path,
    row: Whole = 1,
    /,
    *,
    full: Flag = False,
    files: Given,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Show the messages of one row, and which of them are trained.

    For example:

        assay sft show data.jsonl 17 --full

    Args:
        file: Data file in any format that 'assay sft filter' writes.
        row: Row number, counted from 1.
        full: Show messages in full.
        files: Tokenizer and chat template of the model to train.
        show: Output options.
    """
    from assay.api.sft_files import sft_show

    shown = sft_show(file, row, **files)
    if show.json:
        print_json(
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
        title = f"row {row} of {file}, format {shown.form}"
        if shown.tools:
            title += f", tools {', '.join(shown.tools)}"
        print_line(title)
        if shown.origin is not None:
            origin = shown.origin
            print_line(
                f"from session {origin.session_id}, turn {origin.first_turn}; "
                f"reward {origin.reward:g}"
            )
    print_trained_parts(shown, full=full)
    return 0


_MAX_ROWS = 12


def stats(file: Path, /, *, show: OutputOptions = OutputOptions()) -> int:
    """Summarise a data file: rows, tokens, actions, worlds and rewards.

    For example:

        assay sft stats data.jsonl

    Args:
        file: Data file in any format that 'assay sft filter' writes.
        show: Output options.
    """
    from assay.api.sft_files import sft_stats

    with show_progress_bar(show, "reading rows") as progress:
        report, lineage, rewards = sft_stats(file, progress=progress)
    about = lineage or {}
    if show.json:
        lengths = report.lengths
        print_json(
            {
                "file": str(file),
                "rows": report.rows,
                "formats": dict(report.forms),
                "tokens": None if lengths is None else lengths.total,
                "trained_tokens": None if lengths is None else lengths.trained,
                "estimated": report.tokenizer is None,
                "actions": dict(report.actions),
                "rewards": rewards,
                "worlds": about.get("worlds"),
                "experiments": about.get("experiments"),
            }
        )
        return 0
    left = about.get("left", {})
    of = f" of {counted(left['episodes'], 'episode')}" if left else ""
    print_line(f"{counted(report.rows, 'row')}{of} in {file}, format {', '.join(report.forms)}")
    for split, worlds in about.get("worlds", {}).items():
        seeds = ", ".join(str(seed) for _, seed in worlds[:_MAX_ROWS])
        more = ", …" if len(worlds) > _MAX_ROWS else ""
        print_line(f"{split}: {counted(len(worlds), 'world')}, seeds {seeds}{more}")
    if rewards is not None:
        least, mean, most = rewards
        print_line(f"reward per row: {least:g} to {most:g}, mean {mean:.3g}")
    for line in format_lengths(report):
        print_line(line)
    actions = {name or "(none)": count for name, count in report.actions.items()}
    if actions:
        print_line("first action of the answers:")
        largest = max(actions.values())
        width = max(map(len, [*actions][:_MAX_ROWS]))
        for name, count in [*actions.items()][:_MAX_ROWS]:
            bar = "█" * max(1, round(_BAR_WIDTH * count / largest))
            print_line(f"  {name:<{width}}  {count:>8,}  {bar}")
    if lineage is None:
        print_line("no manifest was found, so worlds and rewards are unknown")
    return 0


def trace(
    file: Path,
    row: Whole,
    /,
    *,
    database: Annotated[Path | None, Parameter(show_default=False)] = None,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Find the episode of a row and replay it up to that row.

    The world is recreated from its seed and compared with the trace after every step.
    By default the episode is read from the database named in the manifest.

    For example:

        assay sft trace data.jsonl 17

    Args:
        file: Data file that 'assay sft filter' wrote.
        row: Row number, counted from 1 like the lines of the file.
        database: Another database to search for the episode.
        show: Output options.
    """
    from assay.api.sft_files import sft_trace

    store = None if database is None else open_store(database, show)
    with show_compilation(show):
        traced = sft_trace(file, row, database=store)
    if show.json:
        header = traced.trace.session.header
        print_json(
            {
                "row": row,
                **traced.origin._asdict(),
                "model": header.subject,
                "task": header.task,
                "seed": header.seed,
                "steps_before": traced.steps_before,
                "actions": traced.actions,
                "replayed": traced.replayed,
                "why_not": traced.why_not,
                "inventory": traced.inventory,
                "unlocked": traced.unlocked,
            }
        )
        return 0 if traced.replayed is not False else 1
    _print_trace(traced)
    return 0 if traced.replayed is not False else 1


def _print_trace(traced: "TracedRow") -> None:
    origin, header = traced.origin, traced.trace.session.header
    is_single = origin.first_turn == origin.last_turn
    turns = f"turn {origin.first_turn}"
    turns += "" if is_single else f" to {origin.last_turn}"
    print_line(f"row {traced.row} is {turns} of session {origin.session_id}")
    print_line(
        f"played by {header.subject} in {header.task}, seed {header.seed}; "
        f"experiment {traced.trace.experiment.name}"
    )
    print_line(f"actions: {', '.join(traced.actions) or 'none'}; reward {origin.reward:g}")
    if traced.replayed:
        inventory = ", ".join(f"{name} {count}" for name, count in traced.inventory.items())
        print_line(f"replayed up to step {traced.steps_before}: identical to the recording")
        print_line(f"  inventory: {inventory}")
        if traced.unlocked:
            print_line(f"  achievements: {', '.join(traced.unlocked)}")
    else:
        print_line(f"cannot be replayed up to this row: {traced.why_not}")
    if traced.database is not None:
        where = f"--database {shlex.quote(str(traced.database))}"
        command = f"{find_program()} traces"
        print_line(
            f"show: {command} show {origin.session_id[:10]} --turns {origin.first_turn} {where}"
        )
        if traced.replayed:
            step = f"--from-step {traced.steps_before}"
            print_line(f"watch: {command} replay {origin.session_id[:10]} {step} {where}")


@_WITH_TOKENIZER
def validate(
    file: Path,
    /,
    *,
    max_tokens: Annotated[
        Whole | None, Parameter(validator=Number(gte=1), show_default=False)
    ] = None,
    holdout_seeds: Annotated[str | None, Parameter(show_default=False)] = None,
    files: Given,
    epochs: Annotated[Whole, Parameter(validator=Number(gte=1))] = 3,
    price: Annotated[float | None, Parameter(show_default=False)] = None,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Check a data file for errors, secrets, duplicates and leaks.

    Checks JSON, roles, tool calls and lengths, and finds held-out worlds. Reads every format
    that 'assay sft filter' writes, as JSON Lines or Parquet, and shows which messages are
    trained. For each kind of problem the first lines are listed. The exit code is 1 if there
    are errors, and 0 if there are only warnings.

    For example:

        assay sft validate data.jsonl --max-tokens 8192

    Args:
        file: File to check.
        max_tokens: Maximum number of tokens in a row; a longer row is an error.
        holdout_seeds: Seeds of worlds that must not be in the file, such as 42,50-59, in
            addition to the seeds in the manifest.
        files: Tokenizer and chat template of the model to train.
        epochs: Number of training epochs, for the cost estimate.
        price: Price in dollars per million trained tokens, as listed by your provider.
        show: Output options.
    """
    from assay.api.sft_files import sft_validate

    with show_progress_bar(show, "checking rows") as progress:
        report = sft_validate(
            file,
            max_tokens=max_tokens,
            holdout_seeds=holdout_seeds,
            progress=progress,
            **files,
        )
    if show.json:
        print_json(_report_to_json(report))
        return 0 if report.ok else 1
    _print_validation(report, epochs, price, show)
    if not show.quiet and report.lengths is not None:
        _print_example(report.path, files)
    return 0 if report.ok else 1


def _print_validation(
    report: "ValidationReport", epochs: int, price: float | None, show: OutputOptions
) -> None:
    errors = [finding for finding in report.findings if finding.is_error]
    rows = counted(report.rows, "row")
    if errors:
        print_line(f"{report.path} is not usable for training: {counted(len(errors), 'kind')} "
            f"of errors in {rows}")  # fmt: skip
    else:
        forms = ", ".join(report.forms)
        print_line(
            f"{report.path} is usable for training: {rows} of the format {forms}, no errors"
        )
    for finding in report.findings:
        word = "error" if finding.is_error else "warning"
        print_line(f"{word}: {finding.kind}, {finding.count:,} times")
        for line, words in finding.first:
            print_line(f"  {f'line {line}: ' if line else ''}{words}")
        if finding.count > len(finding.first):
            print_line(f"  and {finding.count - len(finding.first):,} more")
    if show.quiet or report.lengths is None:
        return
    print_line("")
    for text in format_lengths(report):
        print_line(text)
    total = report.lengths.total * epochs
    cost = ""
    if price is not None:
        cost = f", about ${total / 1e6 * price:,.2f} at ${price:g} per million"
    print_line(f"{counted(epochs, 'epoch')}: {format_tokens(total, report)} tokens{cost}")
    print_line(
        f"checked for held-out seeds: {', '.join(map(str, report.checked_against))}"
        if report.checked_against
        else "no held-out seeds are known; --holdout-seeds lists seeds to check for"
    )
    if report.templated:
        print_line(
            f"the first {counted(report.templated, 'row')} were rendered with the chat template"
        )


def _print_example(path: Path, files: Given) -> None:
    from assay.api.sft_files import sft_show

    try:
        shown = sft_show(path, 1, **files)
    except UsageError:
        return
    print_line("")
    print_line("trained parts of row 1:")
    print_trained_parts(shown, full=False)


def _report_to_json(report: "ValidationReport") -> dict[str, object]:
    return {
        **asdict(report),
        "path": str(report.path),
        "ok": report.ok,
        "findings": [
            {**asdict(finding), "error": finding.is_error} for finding in report.findings
        ],
    }
