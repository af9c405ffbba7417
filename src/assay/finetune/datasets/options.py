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
    """What one row is."""

    CALL = "call"
    """One call: what the model was sent, and its answer."""
    WINDOW = "window"
    """Some turns that follow one another."""
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
    """Which seeds are held out: these, or a share of those there are."""

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
    """What an episode must have to be trained on; what is empty or None asks for nothing."""

    min_achievements: _Count = None
    """At least this many different achievements."""
    min_reward: float | None = None
    """At least this reward."""
    max_turns: _Count = None
    """At most this many turns."""
    require_termination: bool = False
    """Only episodes that ended by themselves: died, length or terminate, and not a limit of
    turns, steps, tokens or time."""
    experiments: Annotated[tuple[str, ...], Option("experiment")] = ()
    """Only these experiments, or those of these runs, by id or name."""
    models: tuple[str, ...] = ()
    """Only episodes that these models played; if none is named, all but baselines."""
    seeds: Annotated[
        tuple[int, ...], Option(given=str | Sequence[int], read=_read_seeds_given)
    ] = ()
    """Only these worlds, such as 42,43,50-59."""
    difficulties: Annotated[tuple[str, ...], Option("difficulty")] = ()
    """Only these difficulties."""
    require_achievements: Annotated[tuple[str, ...], Option("require_achievement")] = ()
    """Only episodes that unlocked all of these."""
    max_invalid_rate: float | None = None
    """At most this share of actions that were unknown or had no effect."""
    max_cost: float | None = None
    """At most this many dollars."""
    hooks: Annotated[tuple[str, ...], Option("hook")] = ()
    """Only episodes in which all of these hooks noticed something."""
    min_quality: float | None = None
    """At least this score of 'assay analyze quality', from 0 to 1."""
    sql: str | None = None
    """A condition of your own over the columns of the view episodes."""
    top: Annotated[
        float | None,
        Option(given=str | float, read=lambda share: read_share(str(share), "--top")),
    ] = None
    """The best share of the episodes of each world, such as 20%."""
    max_per_world: _Count = None
    """At most this many episodes of each world, the best ones."""
    holdout: Annotated[
        Holdout | None,
        Option("holdout_seeds", given=str | Sequence[int], read=Holdout.read),
    ] = None
    """Worlds to write into a file of their own: seeds, or a share as 20%."""

    def given(self) -> dict[str, Any]:
        """Return the filters in use as JSON values, without the holdout."""
        names = [each.name for each in fields(self) if each.name != "holdout"]
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value not in (None, (), False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerOptions:
    """Files of the model to train that say how it reads a row."""

    tokenizer: Annotated[Path | str | None, Option(without="estimates")] = None
    """The tokenizer.json of the model to train, a local file. Needs 'pip install
    tokenizers'."""
    chat_template: Annotated[Path | str | None, Option(without="beside the tokenizer")] = None
    """The chat_template.jinja of the model to train, or the tokenizer_config.json that holds
    it. Shows which of its text is trained. Needs 'pip install jinja2'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """How rows are made of the episodes that were chosen."""

    mode: Mode = Mode.CALL
    """One row for each call, for some turns in a row, or for the whole episode."""
    turns: Annotated[int, Option(least=1)] = 8
    """How many turns a window has."""
    form: Annotated[RowFormat, Option("format")] = RowFormat.OPENAI
    """What a row looks like."""
    drop_waste: bool = False
    """Leave out calls whose turn came to nothing."""
    mask_waste: bool = False
    """Keep their answers in a window or an episode, with weight 0."""
    balance_actions: bool = False
    """Let no first action have more rows than the median one."""
    dedupe: bool = False
    """Leave out rows that are the same as one before."""
    drop_notes: bool = False
    """Take the notes out of all answers, in requests and replies, such as the memory of
    builtin/expert."""
    relabel: bool = False
    """Put in place of each answer what builtin/expert would have answered there."""
    train_history: bool = False
    """Also train on earlier answers in the prompt, which else have weight 0."""
    prompt_completion: bool = False
    """For trl: prompt and completion in place of messages."""

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
        """Whether a row is a pair of answers."""
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
