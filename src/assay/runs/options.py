"""Options that select the run of a command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from assay.core.options import Option
from assay.errors import UsageError


def read_model_map(pairs: Mapping[str, str] | Sequence[str]) -> Mapping[str, str]:
    """Parse `--model-map OLD=NEW`, and return the new names by old name."""
    if isinstance(pairs, Mapping):
        return pairs
    new_names = {}
    for pair in pairs:
        old, _, new = pair.partition("=")
        if not old or not new:
            raise UsageError(f"--model-map {pair!r} is not allowed; give OLD=NEW")
        new_names[old] = new
    return new_names


@dataclass(frozen=True, slots=True, kw_only=True)
class WhichRun:
    """A new run, or an unfinished one to resume."""

    resume: str | None = None
    """Resume an unfinished run, given by its id or the start of its id."""
    fresh: bool = False
    """Start a new run, even if the same command left an unfinished one."""
    run_id: str | None = None
    """Id for the new run, for tests and schedulers."""
    allow_different: Annotated[tuple[str, ...], Option(repeated=True)] = ()
    """Accept a change in a resumed run: address (another model server) or ledger (its
    spending record is missing). [choices: address, ledger]"""
