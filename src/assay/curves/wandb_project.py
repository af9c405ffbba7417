"""Runs of a project at W&B, asked for by their ids through the `wandb` package."""

import os
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from assay.curves.described import described_run
from assay.curves.points import Points
from assay.curves.wandb_files import add_history
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.experiments.training import TrainingRun

__all__ = ["WandbProject"]

_NAME = re.compile(r"[^/\s]+/[^/\s]+")
_KEY = "WANDB_API_KEY"
_ROWS_AT_ONCE = 1_000
_SECONDS = 60
_NOT_FOUND = "could not find run"
"""What the package says of a run that is not there."""


class WandbProject:
    """A project, `ENTITY/PROJECT`, at W&B or at the server that WANDB_BASE_URL names."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--wandb {name!r} is no project; give ENTITY/PROJECT, such as me/crafter"
            )
        self._name = name
        self._api: Any = None

    def find(self, run_id: str) -> "TrainingRun | None":
        """A run with all its curves; None if the project has none of that id.

        Raises:
            UsageError: The package, the key or the answer is missing.
        """
        wandb = _package(self._name)
        try:
            if self._api is None:
                self._api = wandb.Api(timeout=_SECONDS)
            run = self._api.run(f"{self._name}/{run_id}")
            rows = list(run.scan_history(page_size=_page_size(run), use_cache=False))
        except (wandb.errors.Error, ValueError) as error:
            if _NOT_FOUND in str(error).lower():
                return None
            raise UsageError(
                f"W&B does not give run {run_id!r} of {self._name}: {error}; check {_KEY} and"
                " WANDB_BASE_URL"
            ) from error
        return self._run(run, rows)

    def load(self, run_id: str) -> "TrainingRun":
        """A run with all its curves.

        Raises:
            UsageError: The project has none of that id, or cannot be asked.
        """
        found = self.find(run_id)
        if found is None:
            raise UsageError(
                f"{run_id!r} is no file, and no run of {self._name} at W&B; give the id at the"
                " end of the run's address"
            )
        return found

    def _run(self, run: Any, rows: list[dict[str, Any]]) -> "TrainingRun":
        points = Points()
        for row in rows:
            add_history(points, row)
        counted = getattr(run, "historyLineCount", None)
        notes = []
        if isinstance(counted, int) and counted > len(rows):
            notes.append(f"W&B counts {counted:,} rows and gave {len(rows):,}")
        facts = {
            "id": run.id,
            "series": getattr(run, "group", None),
            "status": run.state,
            "commit": run.commit,
            "configuration": {k: v for k, v in run.config.items() if not k.startswith("_")},
            "provenance": {"project": self._name, "name": run.name},
            "created_at": _time(run.created_at),
        }
        source = f"W&B {self._name}/{run.id}"
        return described_run(
            facts, points, source=source, names=[run.id, run.name], notes=notes
        )


def _package(project: str) -> Any:
    """The package, which is heavy, and which only who asks W&B has."""
    if not os.environ.get(_KEY):
        raise UsageError(
            f"--wandb {project} asks W&B, which takes a key: export {_KEY}=…; to read runs of"
            " the offline mode, name their folders instead"
        )
    try:
        import wandb
    except ImportError as error:
        raise UsageError(
            f"--wandb {project} asks W&B through its package, which is not there: pip install"
            " wandb"
        ) from error
    return wandb


def _page_size(run: Any) -> int:
    """How many steps to ask for at once: the package counts pages in steps, not in rows."""
    rows = getattr(run, "historyLineCount", None) or 1
    return max(_ROWS_AT_ONCE, _ROWS_AT_ONCE * (int(run.lastHistoryStep) + 1) // int(rows))


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=None) if text else None
