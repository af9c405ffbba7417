"""How rows are made of the episodes that were chosen: what was asked for, checked."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.errors import UsageError

from .examples import Mode
from .formats import RowFormat

__all__ = ["DatasetPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlan:
    """How rows are made of the episodes that were chosen."""

    form: RowFormat = RowFormat.OPENAI
    mode: Mode = Mode.CALL
    turns: int = 8
    """Turns of a window."""
    drop_waste: bool = False
    mask_waste: bool = False
    balance_actions: bool = False
    dedupe: bool = False
    drop_notes: bool = False
    relabel: bool = False
    """Whether the expert's answers take the place of those that were given."""
    train_history: bool = False
    prompt_completion: bool = False

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
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
        """Whether worlds are played again for it."""
        return self.is_preference or self.form is RowFormat.PROMPTS

    def columns(self, output: Path) -> Sequence[str] | None:
        """The columns of a Parquet file; None for JSON Lines.

        Raises:
            UsageError: The format has no such columns.
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
        """The plan as JSON has it."""
        return {name: value for name, value in asdict(self).items() if value is not False}
