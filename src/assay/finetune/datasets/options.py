"""Options of `assay sft filter`: the choice of episodes, and the conversion to rows."""

import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

from assay.core.options import Option
from assay.errors import UsageError
from assay.finetune.datasets.formats import RowFormat


class RowMode(StrEnum):
    """Content of one row."""

    CALL = "call"
    """One model call: the request and the reply."""
    WINDOW = "window"
    """Several consecutive turns."""
    EPISODE = "episode"
    """All turns of an episode."""


_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MAX_SEEDS = 1_000_000


def parse_seeds(text: str, option: str) -> tuple[int, ...]:
    """Parse a list of seeds such as `42,43,50-59`.

    Raises:
        UsageError: The text is not a list of seeds.
    """
    seeds: dict[int, None] = {}
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + _MAX_SEEDS:
            raise UsageError(
                f"{option} {text!r}: {part!r} is not a seed; give seeds such as 42,43,50-59"
            )
        seeds.update(dict.fromkeys(range(first, last + 1)))
    if not seeds:
        raise UsageError(f"{option} {text!r} has no seed; give seeds such as 42,43,50-59")
    return tuple(seeds)


def parse_share(text: str, option: str) -> float:
    """Parse a share such as `20%` or `0.2`.

    Raises:
        UsageError: The text is not a share above 0 and at most 1.
    """
    try:
        percent = text.strip().endswith("%")
        share = float(text.strip().removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"{option} {text!r} is not a share; give one such as 20% or 0.2")
    return share


def _parse_seeds_option(seeds: str | Sequence[int]) -> tuple[int, ...]:
    if isinstance(seeds, str):
        return parse_seeds(seeds, "--seeds") if seeds else ()
    return tuple(seeds)


@dataclass(frozen=True, slots=True)
class Holdout:
    """Held-out seeds: these seeds, or a share of the available ones."""

    seeds: tuple[int, ...] = ()
    share: float | None = None

    @classmethod
    def read(cls, text: str | Sequence[int]) -> "Holdout":
        """Parse a list of seeds, or a share such as `20%`."""
        if not isinstance(text, str):
            return cls(tuple(text))
        if "%" in text:
            return cls(share=parse_share(text, "--holdout-seeds"))
        return cls(parse_seeds(text, "--holdout-seeds"))

    def select(self, seeds: Collection[int]) -> frozenset[int]:
        """Return the held-out seeds among these.

        A share takes the seeds with the smallest hashes, so that the choice is reproducible and
        independent of the results.
        """
        if self.share is None:
            return frozenset(self.seeds) & frozenset(seeds)
        ranked = sorted(
            set(seeds), key=lambda seed: blake2b(str(seed).encode(), digest_size=8).digest()
        )
        return frozenset(ranked[: max(1, round(self.share * len(ranked)))] if ranked else ())


_Count = Annotated[int | None, Option(least=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFilters:
    """Criteria an episode must meet to be used for training; None or empty means no filter."""

    min_achievements: _Count = None
    """At least this many different achievements."""
    min_reward: float | None = None
    """At least this reward."""
    max_turns: _Count = None
    """At most this many turns."""
    require_termination: bool = False
    """Only episodes that ended with died, length or terminate, not with a limit on turns,
    steps, tokens or time."""
    experiments: Annotated[tuple[str, ...], Option("experiment")] = ()
    """Only episodes in these experiments or runs, given by id or name."""
    models: tuple[str, ...] = ()
    """Only episodes with these models. If none is given: all except baselines."""
    seeds: Annotated[
        tuple[int, ...], Option(given=str | Sequence[int], read=_parse_seeds_option)
    ] = ()
    """Only these worlds, such as 42,43,50-59."""
    difficulties: Annotated[tuple[str, ...], Option("difficulty")] = ()
    """Only these difficulties."""
    require_achievements: Annotated[tuple[str, ...], Option("require_achievement")] = ()
    """Only episodes that unlocked all of these."""
    max_invalid_rate: float | None = None
    """Maximum share of actions that are unknown or had no effect."""
    max_cost: float | None = None
    """At most this many dollars."""
    hooks: Annotated[tuple[str, ...], Option("hook")] = ()
    """Only episodes in which all of these hooks reported something."""
    labels: Annotated[tuple[str, ...], Option("label")] = ()
    """Only episodes with all of these labels, such as keep; 'assay view' sets them."""
    min_quality: float | None = None
    """Minimum score of 'assay analyze quality', from 0 to 1."""
    sql: str | None = None
    """SQL condition on the columns of the view episodes."""
    top: Annotated[
        float | None,
        Option(given=str | float, read=lambda share: parse_share(str(share), "--top")),
    ] = None
    """Only this share of the episodes of each world, the best ones, such as 20%."""
    max_per_world: _Count = None
    """Maximum number of episodes per world; the best ones are used."""
    holdout: Annotated[
        Holdout | None,
        Option("holdout_seeds", given=str | Sequence[int], read=Holdout.read),
    ] = None
    """Worlds to write to a separate file: seeds, or a share such as 20%."""

    def as_json(self) -> dict[str, Any]:
        """Return the filters in use as JSON values, without the holdout."""
        names = [field.name for field in fields(self) if field.name != "holdout"]
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value not in (None, (), False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerOptions:
    """Files of the model to train that define how rows become tokens."""

    tokenizer: Annotated[Path | str | None, Option(without="estimates")] = None
    """Local tokenizer.json file of the model to train. Requires 'pip install
    tokenizers'."""
    chat_template: Annotated[Path | str | None, Option(without="next to the tokenizer")] = None
    """chat_template.jinja of the model to train, or the tokenizer_config.json that contains
    it. Shows which parts of the text are trained. Requires 'pip install jinja2'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """Conversion of the chosen episodes to rows."""

    mode: RowMode = RowMode.CALL
    """Write one row per call, per window of consecutive turns, or per episode."""
    turns: Annotated[int, Option(least=1)] = 8
    """Number of turns in a window."""
    form: Annotated[RowFormat, Option("format")] = RowFormat.OPENAI
    """Format of the rows."""
    drop_waste: bool = False
    """Leave out calls of wasted turns: a malformed reply, or no action with an effect."""
    mask_waste: bool = False
    """Keep the replies of wasted turns in a window or an episode, with weight 0."""
    balance_actions: bool = False
    """Limit the rows of each first action to the median number of rows per action."""
    dedupe: bool = False
    """Leave out duplicate rows."""
    drop_notes: bool = False
    """Remove notes from all replies, also inside requests, such as the memory of
    builtin/expert."""
    relabel: bool = False
    """Replace each reply with the reply of builtin/expert in the same state."""
    train_history: bool = False
    """Also train on earlier replies in the prompt; otherwise they have weight 0."""
    prompt_completion: bool = False
    """For trl: write prompt and completion instead of messages."""

    def __post_init__(self) -> None:
        """Raise UsageError if options contradict each other."""
        weighted = self.form is RowFormat.OPENAI
        if self.drop_waste and self.mode is not RowMode.CALL:
            raise UsageError(
                f"--drop-waste would leave a gap in a row of --mode {self.mode}; use "
                "--mask-waste, or --mode call"
            )
        if self.mask_waste and (self.mode is RowMode.CALL or not weighted):
            raise UsageError(
                "--mask-waste sets the weight of wasted answers to 0, so it needs --mode "
                "window or episode, and --format openai; use --drop-waste with --mode call"
            )
        if self.balance_actions and self.mode is not RowMode.CALL:
            raise UsageError(
                f"--balance-actions counts calls, and a row of --mode {self.mode} has several; "
                "use --mode call"
            )
        if self.train_history and not weighted:
            raise UsageError(
                f"--train-history sets weights, which --format {self.form} does not have; use "
                "--format openai"
            )
        if self.prompt_completion and self.form is not RowFormat.TRL:
            raise UsageError(f"--prompt-completion needs --format trl, not {self.form}")
        if self.relabel and (self.mode is not RowMode.CALL or self.has_states):
            raise UsageError(
                "--relabel replaces the answer of each call, so it needs --mode call, and a "
                "--format with one answer per row, such as openai"
            )
        if self.form is RowFormat.PROMPTS and self.mode is not RowMode.CALL:
            raise UsageError(
                f"--format prompts has one row per call; leave out --mode {self.mode}"
            )
        if self.turns < 1:
            raise UsageError(f"--turns {self.turns} is not allowed; give 1 or more")

    @property
    def is_preference(self) -> bool:
        """Whether a row is a pair of replies."""
        return self.form in (RowFormat.PREFERENCE, RowFormat.PREFERENCE_TRL)

    @property
    def has_states(self) -> bool:
        """Whether the worlds of episodes have to be replayed."""
        return self.is_preference or self.form is RowFormat.PROMPTS

    def get_columns(self, output: Path) -> Sequence[str] | None:
        """Return the columns of a Parquet file; None for JSON Lines.

        Raises:
            UsageError: The format cannot be written as Parquet.
        """
        if output.suffix != ".parquet":
            return None
        if self.form is not RowFormat.TRL:
            raise UsageError(
                f"{str(output)!r} would be Parquet, which only --format trl supports; "
                "name a file that ends in .jsonl"
            )
        return ("prompt", "completion") if self.prompt_completion else ("messages",)

    def as_json(self) -> dict[str, Any]:
        """Return the options as JSON values, without flags that are off."""
        return {name: value for name, value in asdict(self).items() if value is not False}
