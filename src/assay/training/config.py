"""Settings of a training run, and a check that the packages it needs are installed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final

from assay.core.settings import Configuration, Counts, Setting
from assay.core.text import format_install_command
from assay.core.values import choice, flag, real, value_type, whole
from assay.errors import UsageError
from assay.training.architectures import ARCHITECTURES, Capacity, architecture_named
from assay.training.curricula import CURRICULA, find_curriculum
from assay.training.environments import (
    ENVIRONMENTS,
    TokenEnvironment,
    TokenSpace,
    make_environment,
    space_of,
)

_MAX_SEED: Final = 2**31 - 1


@value_type("the name of an architecture", choices=tuple(ARCHITECTURES))
def _parse_architecture(value: Any) -> str:
    return architecture_named(str(value)).name


@value_type("the name of an environment", choices=tuple(ENVIRONMENTS))
def _parse_environment(value: Any) -> str:
    space_of(str(value))
    return str(value)


@value_type("the name of a curriculum", choices=tuple(CURRICULA["crafter"]))
def _parse_curriculum(value: Any) -> str:
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig(Configuration):
    """Settings of a training run; an invalid value raises UsageError."""

    architecture: str = Setting(
        "vit_reset", _parse_architecture, at="training", group="Training run"
    ).about("Network architecture")
    width: int | None = Setting(
        None, whole(1, 4096), at="training", without="depends on the architecture"
    ).about("Width of the layers")
    environment: str = Setting("crafter", _parse_environment, at="training").about(
        "Training environment"
    )
    curriculum: str = Setting("terrain_2", _parse_curriculum, at="training").about(
        "Distribution of training worlds"
    )
    seed: int = Setting(1, whole(0, _MAX_SEED), at="training").about(
        "Seed of initial weights, worlds, actions and data order"
    )
    total_steps: int = Setting(1_000_000, whole(1, 10**12), at="training").about(
        "Total number of environment steps; the last rollout may exceed it slightly"
    )
    length: int = Setting(10_000, whole(1, 100_000), at="training").about(
        "Maximum number of steps in an episode"
    )

    worlds: int = Setting(64, whole(1, 65_536), at="ppo", group="PPO").about(
        "Number of worlds run at the same time"
    )
    rollout: int = Setting(64, whole(1, 65_536), at="ppo").about(
        "Steps per world between two updates"
    )
    epochs: int = Setting(3, whole(1, 1000), at="ppo").about(
        "Number of passes over each rollout"
    )
    minibatches: int = Setting(8, whole(1, 65_536), at="ppo").about(
        "Number of minibatches that the worlds of a rollout are split into"
    )
    learning_rate: float = Setting(5e-4, real(1e-9, 1.0), at="ppo").about("Learning rate")
    anneal: bool = Setting(True, flag, at="ppo").about(
        "Reduce the learning rate to a tenth over the run"
    )
    gamma: float = Setting(0.95, real(0.0, 1.0), at="ppo").about("Discount factor of rewards")
    gae_lambda: float = Setting(0.65, real(0.0, 1.0), at="ppo").about(
        "Lambda of generalized advantage estimation (GAE)"
    )
    clip: float = Setting(0.2, real(1e-6, 10.0), at="ppo").about(
        "Clip range of the probability ratio"
    )
    entropy: float = Setting(0.01, real(0.0, 10.0), at="ppo").about(
        "Coefficient of the entropy bonus"
    )
    value_coefficient: float = Setting(0.5, real(0.0, 100.0), at="ppo").about(
        "Coefficient of the value loss"
    )
    max_grad_norm: float = Setting(0.5, real(1e-6, 1e6), at="ppo").about(
        "Maximum norm of the gradient; longer gradients are clipped"
    )

    eval_every: int = Setting(
        100_000, whole(1, 10**12), at="evaluation", group="Evaluation"
    ).about("Steps between evaluations on held-out worlds; the last one is at the end")
    eval_worlds: int = Setting(64, whole(2, 65_536), at="evaluation").about(
        "Number of held-out worlds; every run of a curriculum has the same ones"
    )
    checkpoint_every: int = Setting(
        100_000, whole(1, 10**12), Counts.NOTHING, at="machine", group="Resources"
    ).about("Steps between checkpoints; the last two are kept")
    threads: int = Setting(1, whole(1, 1024), Counts.NOTHING, at="machine").about(
        "Number of threads for the network; with more than one, runs are not reproducible"
    )
    wandb: str = Setting(
        "off", choice("off", "offline", "online"), Counts.NOTHING, at="machine"
    ).about("Also log to Weights & Biases")

    def complete(self) -> None:
        """Check the settings that depend on each other."""
        if self.worlds % self.minibatches:
            raise UsageError(
                f"minibatches {self.minibatches} does not divide {self.worlds} worlds; give a "
                f"divisor of {self.worlds}"
            )
        find_curriculum(self.curriculum, self.environment)
        step = architecture_named(self.architecture).step
        if self.width is not None and self.width % step:
            raise UsageError(
                f"width {self.width} is not allowed for {self.architecture}; give a multiple "
                f"of {step}"
            )

    @property
    def space(self) -> TokenSpace:
        """Observations and actions of the environment."""
        return space_of(self.environment)

    @property
    def resolved_width(self) -> int:
        """The given width, or the default of the architecture."""
        return self.width or architecture_named(self.architecture).width

    @property
    def capacity(self) -> Capacity:
        """Size of the network."""
        return architecture_named(self.architecture).capacity(self.space, self.resolved_width)

    @property
    def name(self) -> str:
        """Default name of a run with these settings."""
        return f"{self.curriculum}.{self.architecture}.seed{self.seed}"

    def with_default_width(self) -> "TrainingConfig":
        """Return the settings with the default width filled in."""
        return replace(self, width=self.resolved_width)

    def make_environment(self, worlds: int) -> TokenEnvironment:
        """Create the environment with this number of worlds."""
        return make_environment(self.environment, worlds, self.length)


def parse_stored_config(stored: Mapping[str, Any], where: str) -> TrainingConfig:
    """Return the configuration stored in a file, as `TrainingConfig.stored` returned it.

    Raises:
        UsageError: It has settings that this version of assay does not support.
    """
    try:
        return TrainingConfig(**stored)
    except TypeError as error:
        raise UsageError(
            f"{where} has settings that this version of assay does not support ({error}); "
            "use the version that wrote it"
        ) from error


def require_training_packages(wandb: str = "off", environment: str = "crafter") -> None:
    """Check that the packages needed for training are installed.

    Raises:
        UsageError: A package is missing; the message has the command that installs it.
    """
    missing = [name for name in ("torch", "safetensors") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training needs {', '.join(missing)}, not installed here; install with: "
            f"{format_install_command('train')}"
        )
    if environment == "mettagrid" and find_spec("mettagrid") is None:
        raise UsageError(
            "--environment mettagrid needs the package mettagrid, not installed here; install "
            f"with: {format_install_command('mettagrid')}; or omit --environment for crafter"
        )
    if wandb != "off" and find_spec("wandb") is None:
        raise UsageError(
            f"--wandb {wandb} needs the package wandb, not installed here; install it with:"
            " pip install wandb, or leave --wandb out"
        )
