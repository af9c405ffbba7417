"""Options that say which run a command means."""

from dataclasses import dataclass
from typing import Annotated

from assay.core.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class WhichRun:
    """A new run, or an unfinished one to resume."""

    resume: str | None = None
    """Resume an unfinished run: its id, or the start of it."""
    fresh: bool = False
    """Start a new run, even if the same command left an unfinished one."""
    run_id: str | None = None
    """The id of the run, for tests and schedulers."""
    allow_different: Annotated[tuple[str, ...], Option(repeated=True)] = ()
    """What may differ from before in a resumed run: address (the server that answers its
    models) or ledger (the record of its spending is lost). [choices: address, ledger]"""
