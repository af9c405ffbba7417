"""Launching: the same training for many seeds, as a kind of trial of `runs`.

`seeds` has the fixed list, `config` what can be chosen, `trainers` who trains, `kind` the
trial, `manifest` what is written down before the first run, `skypilot` tasks for elsewhere.
Names are loaded when first used.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .config import LaunchConfig
    from .kind import TrainingKind, arms_of, seeds_of, trainer_of
    from .manifest import (
        LaunchManifest,
        LaunchSet,
        TrainerChanges,
        differences,
        latest_manifest,
        read_launch_manifest,
        trainer_changes,
        trainer_place,
        write_launch_manifest,
    )
    from .seeds import SEEDS, chosen_seeds
    from .skypilot import as_yaml, check_tasks, sky_task
    from .trainers import PLACEHOLDERS, TrainedSeed, command_words

__all__ = [
    "PLACEHOLDERS",
    "SEEDS",
    "LaunchConfig",
    "LaunchManifest",
    "LaunchSet",
    "TrainedSeed",
    "TrainerChanges",
    "TrainingKind",
    "arms_of",
    "as_yaml",
    "check_tasks",
    "chosen_seeds",
    "command_words",
    "differences",
    "latest_manifest",
    "read_launch_manifest",
    "seeds_of",
    "sky_task",
    "trainer_changes",
    "trainer_of",
    "trainer_place",
    "write_launch_manifest",
]

__getattr__, __dir__ = _lazy_names(__name__)
