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


class Mode(StrEnum):
    """Content of one row."""

    CALL = "call"
    """One model call: the request and the reply."""
    WINDOW = "window"
    """Several consecutive turns."""
    EPISODE = "episode"
    """All turns of an episode."""


_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST = 1_000_000


def read_seeds(text: str, option: str) -> tuple[int, ...]:
    """Parse a list of seeds such as `42,43,50-59`.

    Raises:
        UsageError: The text is not a list of seeds.
    """
    seeds: dict[int, None] = {}
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        found = _RANGE.fullmatch(part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < first + _MOST:
            raise UsageError(
                f"{option} {text!r}: {part!r} is no seed; give seeds such as 42,43,50-59"
            )
        seeds.update(dict.fromkeys(range(first, last + 1)))
    if not seeds:
        raise UsageError(f"{option} {text!r} has no seed; give seeds such as 42,43,50-59")
    return tuple(seeds)


def read_share(text: str, option: str) -> float:
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
        raise UsageError(f"{option} {text!r} is no share; give one such as 20% or 0.2")
    return share


def _read_seeds_given(seeds: str | Sequence[int]) -> tuple[int, ...]:
    if isinstance(seeds, str):
        return read_seeds(seeds, "--seeds") if seeds else ()
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
            return cls(share=read_share(text, "--holdout-seeds"))
        return cls(read_seeds(text, "--holdout-seeds"))

    def among(self, seeds: Collection[int]) -> frozenset[int]:
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
        tuple[int, ...], Option(given=str | Sequence[int], read=_read_seeds_given)
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
    min_quality: float | None = None
    """Minimum score of 'assay analyze quality', from 0 to 1."""
    sql: str | None = None
    """SQL condition on the columns of the view episodes."""
    top: Annotated[
        float | None,
        Option(given=str | float, read=lambda share: read_share(str(share), "--top")),
    ] = None
    """Only this share of the episodes of each world, the best ones, such as 20%."""
    max_per_world: _Count = None
    """Maximum number of episodes per world; the best ones are used."""
    holdout: Annotated[
        Holdout | None,
        Option("holdout_seeds", given=str | Sequence[int], read=Holdout.read),
    ] = None
    """Worlds to write to a separate file: seeds, or a share such as 20%."""

    def given(self) -> dict[str, Any]:
        """Return the filters in use as JSON values, without the holdout."""
        names = [each.name for each in fields(self) if each.name != "holdout"]
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value not in (None, (), False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerOptions:
    """Files of the model to train that define how rows become tokens."""

    tokenizer: Annotated[Path | str | None, Option(without="estimates")] = None
    """Local tokenizer.json file of the model to train. Requires 'pip install
    tokenizers'."""
    chat_template: Annotated[Path | str | None, Option(without="beside the tokenizer")] = None
    """chat_template.jinja of the model to train, or the tokenizer_config.json that contains
    it. Shows which parts of the text are trained. Requires 'pip install jinja2'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """Conversion of the chosen episodes to rows."""

    mode: Mode = Mode.CALL
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
        if self.drop_waste and self.mode is not Mode.CALL:
            raise UsageError(
                f"--drop-waste would tear a hole into a row of --mode {self.mode}; use "
                "--mask-waste there, or --mode call"
            )
        if self.mask_waste and (self.mode is Mode.CALL or not weighted):
            raise UsageError(
                "--mask-waste gives a wasted answer among others the weight 0, so it needs "
                "--mode window or episode, and --format openai; use --drop-waste with "
                "--mode call"
            )
        if self.balance_actions and self.mode is not Mode.CALL:
            raise UsageError(
                f"--balance-actions counts calls, and --mode {self.mode} has several in a row; "
                "use --mode call"
            )
        if self.train_history and not weighted:
            raise UsageError(
                f"--train-history is about weights, which --format {self.form} has none of; "
                "use --format openai"
            )
        if self.prompt_completion and self.form is not RowFormat.TRL:
            raise UsageError(
                f"--prompt-completion is a shape of --format trl, not of {self.form}"
            )
        if self.relabel and (self.mode is not Mode.CALL or self.has_states):
            raise UsageError(
                "--relabel gives each call another answer, so it needs --mode call, and a "
                "--format with one answer in a row, such as openai"
            )
        if self.form is RowFormat.PROMPTS and self.mode is not Mode.CALL:
            raise UsageError(
                f"--format prompts has a row per call; leave out --mode {self.mode}"
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

    def columns(self, output: Path) -> Sequence[str] | None:
        """Return the columns of a Parquet file; None for JSON Lines.

        Raises:
            UsageError: The format cannot be written as Parquet.
        """
        if output.suffix != ".parquet":
            return None
        if self.form is not RowFormat.TRL:
            raise UsageError(
                f"{str(output)!r} would be Parquet, which --format trl alone can be; "
                "name a file that ends in .jsonl"
            )
        return ("prompt", "completion") if self.prompt_completion else ("messages",)

    def given(self) -> dict[str, Any]:
        """Return the options as JSON values, without flags that are off."""
        return {name: value for name, value in asdict(self).items() if value is not False}
