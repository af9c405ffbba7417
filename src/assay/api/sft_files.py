"""Training data files of any format: validation, statistics, rows and their origin."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.api.sft import open_source
from assay.core.options import takes_options
from assay.errors import UsageError
from assay.finetune.datasets.options import TokenizerOptions
from assay.store.opening import Where

if TYPE_CHECKING:
    from assay.finetune.datasets.chat_template import ChatTemplate, RowMask, TokenizerFile
    from assay.finetune.datasets.manifest import RowOrigin
    from assay.finetune.datasets.validate import ValidationReport
    from assay.store.records import SessionRecord, Trace

Progress = Callable[[int, int], None]
"""Called with the number of completed items and their total."""


class RowRendering(NamedTuple):
    """A row as rendered by a chat template."""

    template: Path
    parts: "list[RowMask]"
    """Its text, in parts that are either trained or not."""
    marked: bool
    """Whether the template marks replies itself; if not, each reply was blanked in turn."""


class ShownRow(NamedTuple):
    """One row of a data file of any format."""

    row: int
    form: str
    masks: "list[RowMask]"
    """Its messages, and which of them are trained."""
    tools: list[str]
    """Names of the tools it offers."""
    origin: "RowOrigin | None"
    """Episode and turns of the row; None without a manifest."""
    estimated: bool = True
    """Whether token counts are estimates, because no tokenizer was given."""
    rendering: RowRendering | None = None
    """The row as rendered by a chat template; None without a template."""
    not_rendered: str = ""
    """Reason why an existing template does not render the row."""


class DatasetStats(NamedTuple):
    """Contents of a data file."""

    report: "ValidationReport"
    lineage: dict[str, Any] | None
    """Data of its manifest about all rows; None without a manifest."""
    rewards: tuple[float, float, float] | None
    """Minimum, mean and maximum reward of a row's turns."""


@takes_options
def sft_validate(
    data: Path | str,
    *,
    max_tokens: int | None = None,
    holdout_seeds: str | Sequence[int] | None = None,
    files: TokenizerOptions,
    progress: Progress = lambda done, total: None,
) -> "ValidationReport":
    """Validate a data file before training.

    Args:
        data: JSON Lines or Parquet file, in any format that `sft_filter` writes.
        max_tokens: Maximum number of tokens per row; a longer row is an error.
        holdout_seeds: Worlds that it must not contain, in addition to those in its manifest.
        files: Tokenizer and chat template of the model to train.
        progress: Called with the number of completed rows and their total.

    Raises:
        UsageError: The file cannot be read, or has no rows.
    """
    from assay.finetune.datasets.message_checks import estimate_tokens
    from assay.finetune.datasets.options import parse_seeds
    from assay.finetune.datasets.validate import validate_file

    seeds = holdout_seeds or ()
    if isinstance(seeds, str):
        seeds = parse_seeds(seeds, "--holdout-seeds")
    tokenizer = _load_tokenizer(files.tokenizer)
    return validate_file(
        Path(data),
        max_tokens=max_tokens,
        holdout_seeds=seeds,
        count=estimate_tokens if tokenizer is None else tokenizer.count,
        tokenizer=None if files.tokenizer is None else str(files.tokenizer),
        template=_load_template(files)[0],
        progress=progress,
    )


@takes_options
def sft_show(
    data: Path | str,
    row: int,
    *,
    files: TokenizerOptions,
) -> ShownRow:
    """Return one row, message by message, with its trained parts.

    Args:
        data: Data file in any format that `sft_filter` writes.
        row: Number of the row, counted from 1.
        files: Tokenizer and chat template of the model to train.

    Raises:
        UsageError: The row does not exist, or cannot be read.
    """
    from assay.finetune.datasets.chat_template import mask_messages
    from assay.finetune.datasets.formats import read_row, read_row_as_written
    from assay.finetune.datasets.manifest import read_row_origins
    from assay.finetune.datasets.message_checks import estimate_tokens, get_tool_schemas

    path = Path(data)
    tokenizer = _load_tokenizer(files.tokenizer)
    template, not_rendered = _load_template(files)
    value = _read_value(path, row)
    content = read_row(value)
    split = "holdout" if path.stem.endswith(".holdout") else "train"
    try:
        origin = next(islice(read_row_origins(path, split), row - 1, None), None)
    except UsageError:
        origin = None
    rendering = None
    if template is not None:
        try:
            rendered = template.render(read_row_as_written(value))
        except UsageError as error:
            not_rendered = str(error)
        else:
            parts = rendered.split_parts(None if tokenizer is None else tokenizer.find_offsets)
            rendering = RowRendering(template.path, parts, rendered.marked)
    return ShownRow(
        row,
        content.form,
        mask_messages(content, estimate_tokens if tokenizer is None else tokenizer.count),
        list(get_tool_schemas(content.tools or ())),
        origin,
        tokenizer is None,
        rendering,
        not_rendered,
    )


def _read_value(path: Path, row: int) -> Any:
    """Return the value of a row, which has a known format.

    Raises:
        UsageError: The row does not exist, or cannot be read.
    """
    from assay.finetune.datasets.formats import read_row
    from assay.finetune.datasets.validate import read_values

    number = 0
    for number, value, problem in read_values(path):
        if number != row:
            continue
        if problem is not None:
            raise UsageError(f"row {row} of {str(path)!r} is not JSON: {problem}")
        try:
            read_row(value)
        except UsageError as error:
            raise UsageError(f"row {row} of {str(path)!r} {error}") from error
        return value
    raise UsageError(f"row {row} is not in {str(path)!r}; its rows are 1 to {number}")


def _load_tokenizer(path: Path | str | None) -> "TokenizerFile | None":
    from assay.finetune.datasets.chat_template import TokenizerFile

    return None if path is None else TokenizerFile(Path(path))


def _load_template(
    files: TokenizerOptions,
) -> tuple["ChatTemplate | None", str]:
    """Return the named chat template or the one next to the tokenizer, or why it is unusable.

    Raises:
        UsageError: The named template cannot be used.
    """
    from assay.finetune.datasets.chat_template import ChatTemplate, find_template

    if files.chat_template is not None:
        return ChatTemplate(Path(files.chat_template)), ""
    path = None if files.tokenizer is None else find_template(Path(files.tokenizer))
    if path is None:
        return None, ""
    try:
        return ChatTemplate(path), ""
    except UsageError as error:
        return None, str(error)


def sft_stats(
    data: Path | str, *, progress: Progress = lambda done, total: None
) -> DatasetStats:
    """Summarise a data file: rows, tokens, actions, worlds, rewards.

    Raises:
        UsageError: The file cannot be read, or has no rows.
    """
    from assay.finetune.datasets.manifest import read_lineage, read_row_origins

    path = Path(data)
    report = sft_validate(path, progress=progress)
    lineage = read_lineage(path)
    rewards = None
    if lineage is not None:
        count, total, least, most = 0, 0.0, float("inf"), float("-inf")
        split = "holdout" if path.stem.endswith(".holdout") else "train"
        for origin in read_row_origins(path, split):
            count, total = count + 1, total + origin.reward
            least, most = min(least, origin.reward), max(most, origin.reward)
        rewards = (least, total / count, most) if count else None
    return DatasetStats(report, lineage, rewards)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRow:
    """One row of a data file, and the moment it came from."""

    row: int
    """Number of the row, counted from 1, as the lines of the file."""
    origin: "RowOrigin"
    trace: "Trace"
    steps_before: int
    """Number of steps before the first turn of the row."""
    actions: tuple[str, ...]
    """Actions of its turns."""
    replayed: bool | None
    """Whether a replay up to the row agrees with the recording; None if impossible."""
    why_not: str = ""
    """Reason why it cannot be replayed, or the first difference."""
    unlocked: Mapping[str, int] = field(default_factory=dict)
    """Achievements unlocked before the row, in the replay."""
    inventory: Mapping[str, int] = field(default_factory=dict)
    """Inventory of the player before the row, in the replay."""
    database: Path | None = None
    """Database of the session; None if it was read from a folder."""


def sft_trace(data: Path | str, row: int, *, database: Where = None) -> TracedRow:
    """Return the episode that a row came from, replayed up to the row's first turn.

    Args:
        data: Data file, with its manifest next to it.
        row: Number of the row, counted from 1.
        database: Database to read; default: the one named in the manifest.

    Raises:
        UsageError: The row, the manifest or the session does not exist.
    """
    from assay.api.traces import load_trace
    from assay.finetune.datasets.manifest import read_lineage, read_row_origins

    path = Path(data)
    split = "holdout" if path.stem.endswith(".holdout") else "train"
    origins = read_row_origins(path, split)
    origin = next(islice(origins, row - 1, None), None) if row > 0 else None
    if origin is None:
        rows = (read_lineage(path) or {}).get("files", {}).get(split, {}).get("rows", 0)
        raise UsageError(f"row {row} is not in {str(path)!r}; its rows are 1 to {rows}")
    source = (read_lineage(path) or {}).get("source", {})
    folder = None if database is not None else source.get("input_dir")
    if database is None and "database" in source:
        database = path.parent / source["database"]
    with open_source(None if folder is None else path.parent / folder, database) as store:
        trace = load_trace(origin.session_id, database=store)
        where = None if folder is not None else store.path
    session = trace.session
    before = [played for played in session.played if played.turn < origin.first_turn]
    actions = [
        step.action
        for played in session.played
        if origin.first_turn <= played.turn <= origin.last_turn
        for step in played.steps
    ]
    steps = sum(len(played.steps) for played in before)
    return TracedRow(
        row=row,
        origin=origin,
        trace=trace,
        steps_before=steps,
        actions=tuple(actions),
        database=where,
        **_replay_steps(session, steps),
    )


def _replay_steps(session: "SessionRecord", steps: int) -> dict[str, Any]:
    """Replay a session for some steps, and compare each with the recording."""
    from assay.episodes.replay import Replay, verify_session

    verification = verify_session(session)
    if verification.reason is not None:
        return {"replayed": None, "why_not": verification.reason}
    if verification.steps < steps:
        return {"replayed": False, "why_not": str(verification.difference)}
    episode = Replay(session)
    for _ in islice(iter(episode), steps):
        pass
    inventory = {name: count for name, count in episode.world.view().inventory.items() if count}
    return {"replayed": True, "unlocked": dict(episode.unlocked), "inventory": inventory}
