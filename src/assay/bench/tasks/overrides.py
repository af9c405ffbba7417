"""What `overrides.json` changes of a task: on the value that is loaded, never in the folder."""

from pathlib import Path
from typing import Final, NamedTuple

from assay.bench.tasks.meta import EvaluationPart, OverridesFile
from assay.bench.tasks.workspace import INSTRUCTIONS
from assay.errors import UsageError

__all__ = ["HIDDEN", "REPLACES_SOURCE", "Overridden", "overridden"]

HIDDEN: Final = ("diff.patch", "tb_meta.json", "repo_info.json", "notes.md", "overrides.json")
"""Files of a task that are no overlay, wherever other tools put them."""
REPLACES_SOURCE: Final = frozenset({"git_url", "branch", "start_commit_sha"})
"""Keys of `repo` that ask for another commit than the one stored with a task."""


class Overridden(NamedTuple):
    """What the overrides make of the parts that they replace."""

    instructions: str | None
    """None if they say nothing about them."""
    evaluation: EvaluationPart


def overridden(change: OverridesFile, evaluation: EvaluationPart, path: Path) -> Overridden:
    """Apply overrides to the instructions and the evaluation of a task.

    Raises:
        UsageError: Two keys of it say different things, or one shows what is hidden.
    """
    texts = {
        "prompt": change.prompt,
        "lm_instructions": change.lm_instructions,
        f"overlay_files.{INSTRUCTIONS}": change.overlay_files.get(INSTRUCTIONS),
    }
    given = {key: text for key, text in texts.items() if text is not None}
    if len(set(given.values())) > 1:
        raise UsageError(
            f"{path}: {' and '.join(given)} say different things; keep one of them"
        )
    if change.evaluation is not None and (change.rubrics, change.test_scripts) != (None, None):
        raise UsageError(
            f"{path}: evaluation stands beside rubrics or test_scripts; put them into it"
        )
    for name in change.overlay_files:
        if name in HIDDEN:
            raise UsageError(
                f"{path}: overlay_files: {name!r} is not allowed: the agent must not see it; "
                "choose another name"
            )
    if change.evaluation is not None:
        evaluation = change.evaluation
    new = {"rubrics": change.rubrics, "test_scripts": change.test_scripts}
    evaluation = evaluation.model_copy(
        update={key: value for key, value in new.items() if value is not None}
    )
    return Overridden(next(iter(given.values()), None), evaluation)
