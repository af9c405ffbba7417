"""`assay sft show`, `stats`, `trace` and `validate`: inspect and check a data file."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from assay.cli.options import Flag, Given, open_store, option_groups
from assay.cli.output import Show, compiling_shown, counting, program, say, say_json
from assay.cli.tables import Whole
from assay.core.text import counted, cut, printable
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.sft_files import ShownRow, TracedRow
    from assay.finetune.datasets.chat_template import RowMask
    from assay.finetune.datasets.validate import ValidationReport

_OF_FILES = option_groups(files="assay.finetune.datasets.options:TokenizerOptions")
_BAR = 40
_BRIEF = 100


def tokens(number: int, report: "ValidationReport") -> str:
    """Format a number of tokens, with a ~ if it is an estimate."""
    return f"{'' if report.tokenizer else '~'}{number:,}"


def length_lines(report: "ValidationReport") -> list[str]:
    """Format the lengths of rows, with a histogram."""
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
    """Print which parts of a row are trained, rendered with the chat template if available."""
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
                said = f"{mask.role:<9} {mark} {size:>7}  {_brief(mask.text)}"
            else:
                said = f"{mark} {size:>7}  {_ends(mask.text, console.width - 20)}"
            brief = Text(f"  {said}", style=style)
            console.print(brief, no_wrap=True, overflow="ellipsis")


def _brief(text: str) -> str:
    """Return the beginning of a text on one line."""
    return cut(" ".join(text.split()), _BRIEF)


def _ends(text: str, width: int) -> str:
    """Return the beginning and the end of a text on one line, with line ends marked."""
    whole = printable(text.replace("\n", "↵"))
    half = (max(width, 20) - 3) // 2
    return whole if len(whole) <= width else f"{whole[:half]} … {whole[-half:]}"


@_OF_FILES
def show_(
    file: Path,
    row: Whole = 1,
    /,
    *,
    full: Flag = False,
    files: Given,
    show: Show = Show(),
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


_MOST = 12


def stats(file: Path, /, *, show: Show = Show()) -> int:
    """Summarise a data file: rows, tokens, actions, worlds and rewards.

    For example:

        assay sft stats data.jsonl

    Args:
        file: Data file in any format that 'assay sft filter' writes.
        show: Output options.
    """
    from assay.api.sft_files import sft_stats

    with counting(show, "reading rows") as progress:
        report, lineage, rewards = sft_stats(file, progress=progress)
    about = lineage or {}
    if show.json:
        lengths = report.lengths
        say_json(
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
    say(f"{counted(report.rows, 'row')}{of} in {file}, format {', '.join(report.forms)}")
    for split, worlds in about.get("worlds", {}).items():
        seeds = ", ".join(str(seed) for _, seed in worlds[:_MOST])
        more = ", …" if len(worlds) > _MOST else ""
        say(f"{split}: {counted(len(worlds), 'world')}, seeds {seeds}{more}")
    if rewards is not None:
        say("reward of a row's turns: {:g} to {:g}, on average {:.3g}".format(*_swap(rewards)))
    for line in length_lines(report):
        say(line)
    actions = {name or "(none)": count for name, count in report.actions.items()}
    if actions:
        say("first action of the answers:")
        most = max(actions.values())
        width = max(map(len, [*actions][:_MOST]))
        for name, count in [*actions.items()][:_MOST]:
            say(f"  {name:<{width}}  {count:>8,}  {'█' * max(1, round(_BAR * count / most))}")
    if lineage is None:
        say("no manifest is beside it, so worlds and rewards are not known")
    return 0


def _swap(rewards: tuple[float, float, float]) -> tuple[float, float, float]:
    least, mean, most = rewards
    return least, most, mean


def trace(
    file: Path,
    row: Whole,
    /,
    *,
    database: Annotated[Path | None, Parameter(show_default=False)] = None,
    show: Show = Show(),
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
    with compiling_shown(show):
        traced = sft_trace(file, row, database=store)
    if show.json:
        header = traced.trace.session.header
        say_json(
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
    _say_trace(traced)
    return 0 if traced.replayed is not False else 1


def _say_trace(traced: "TracedRow") -> None:
    origin, header = traced.origin, traced.trace.session.header
    one = origin.first_turn == origin.last_turn
    turns = f"turn {origin.first_turn}"
    turns += "" if one else f" to {origin.last_turn}"
    say(f"row {traced.row} is {turns} of session {origin.session_id}")
    say(
        f"played by {header.subject} in {header.task}, seed {header.seed}; "
        f"its experiment is {traced.trace.experiment.name}"
    )
    say(f"played: {', '.join(traced.actions) or 'nothing'}; reward {origin.reward:g}")
    if traced.replayed:
        had = ", ".join(f"{name} {count}" for name, count in traced.inventory.items())
        say(f"played again up to there: step {traced.steps_before}, the same as recorded")
        say(f"  the player had {had}")
        if traced.unlocked:
            say(f"  and had reached {', '.join(traced.unlocked)}")
    else:
        say(f"it cannot be played again up to there: {traced.why_not}")
    if traced.database is not None:
        where = f"--database {shlex.quote(str(traced.database))}"
        called = f"{program()} traces"
        say(f"look: {called} show {origin.session_id[:10]} --turns {origin.first_turn} {where}")
        if traced.replayed:
            step = f"--from-step {traced.steps_before}"
            say(f"watch: {called} replay {origin.session_id[:10]} {step} {where}")


@_OF_FILES
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
    show: Show = Show(),
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

    with counting(show, "checking rows") as progress:
        report = sft_validate(
            file,
            max_tokens=max_tokens,
            holdout_seeds=holdout_seeds,
            progress=progress,
            **files,
        )
    if show.json:
        say_json(_as_json(report))
        return 0 if report.ok else 1
    _say_validation(report, epochs, price, show)
    if not show.quiet and report.lengths is not None:
        _say_example(report.path, files)
    return 0 if report.ok else 1


def _say_validation(
    report: "ValidationReport", epochs: int, price: float | None, show: Show
) -> None:
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


def _say_example(path: Path, files: Given) -> None:
    from assay.api.sft_files import sft_show

    try:
        shown = sft_show(path, 1, **files)
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
