"""Every setting of a run: its name, what it takes, and where it stands in a file.

Declared once. The name is the same as a field, on the command line (with hyphens) and in
files; files that users already have may call it otherwise. The first place of a setting is
the one that `assay init` writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from assay.errors import UsageError
from assay.rollouts.kinds import (
    Address,
    Choice,
    File,
    Files,
    Flag,
    Key,
    Kind,
    Label,
    Location,
    Names,
    OptionalLocation,
    Outcome,
    Rates,
    Real,
    Whole,
    World,
)

__all__ = ["DIFFICULTY_TABLE", "SETTINGS", "TABLES", "Setting"]

DIFFICULTY_TABLE: Final = "difficulty"
"""The table of a file that as a whole is one setting."""
_MANY: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be chosen about a run."""

    name: str
    kind: Kind
    places: tuple[str, ...]
    """Where it may stand in a file, as `table.key`."""
    is_secret: bool = False

    @property
    def option(self) -> str:
        """What it is called on the command line."""
        return "--" + self.name.replace("_", "-")

    def read(self, value: Any, label: str) -> Any:
        """The value in the type used inside; `label` says in an error who gave it."""
        try:
            return self.kind.read(value)
        except UsageError as error:
            raise UsageError(f"{label}: {error}") from error
        except ValueError as error:
            reason = f" ({error})" if str(error) else ""
            raise UsageError(
                f"{label}: {self._shown(value)} is not allowed{reason}; "
                f"give {self.kind.allowed}"
            ) from error

    def _shown(self, value: Any) -> str:
        if self.is_secret:
            return "this value"
        text = repr(str(value)) if hasattr(value, "__fspath__") else repr(value)
        return text if len(text) <= 80 else f"{text[:77]}..."


_ALL: Final = (
    Setting("models", Names(), ("run.models", "experiment.models", "eval.model_name")),
    Setting("name", Label(), ("run.name",)),
    Setting("hooks", Files(), ("run.hooks",)),
    Setting("metrics_from", File(), ("run.metrics_from",)),
    Setting("baselines", Flag(), ("run.baselines",)),
    Setting("concurrent_models", Flag(), ("run.concurrent_models",)),
    Setting("max_concurrent_models", Whole(1, 1000), ("run.max_concurrent_models",)),
    Setting("max_concurrent_episodes", Whole(1, 100_000), ("run.max_concurrent_episodes",)),
    Setting("episodes", Whole(1, 1_000_000), ("experiment.episodes", "eval.episodes")),
    Setting("until_decided", Outcome(), ("experiment.until_decided", "eval.until_decided")),
    Setting(
        "min_effect",
        Real(1e-9, 1e9, zero_is_none=True),
        ("experiment.min_effect", "eval.min_effect"),
    ),
    Setting("max_turns", Whole(1, 1_000_000), ("experiment.max_turns", "eval.max_steps")),
    Setting("difficulty", World(), ("experiment.difficulty", "eval.difficulty")),
    Setting("seed", Whole(0, 2**31 - 1), ("experiment.seed", "eval.seed")),
    Setting("service_url", Address(), ("services.crafter_service_url", "service.base_url")),
    Setting("service_timeout", Real(0.1, 86_400.0), ("service.timeout",)),
    Setting("database", Location(), ("services.database_path",)),
    Setting("traces_dir", Location(), ("output.traces_dir",)),
    Setting("save_traces", Flag(), ("output.save_traces",)),
    Setting("save_detailed_results", Flag(), ("output.save_detailed_results",)),
    Setting("history", Whole(1, 100), ("agent.history",)),
    Setting("temperature", Real(0.0, 2.0), ("agent.temperature",)),
    Setting("max_tokens", Whole(1, _MANY), ("agent.max_tokens",)),
    Setting("actions_per_turn", Whole(1, 50), ("agent.actions_per_turn",)),
    Setting("view", Choice(("full", "short")), ("agent.view",)),
    Setting("prompt", File(), ("agent.prompt",)),
    Setting("step_limit", Whole(1, _MANY, zero_is_none=True), ("limits.step_limit",)),
    Setting("token_limit", Whole(1, 10**15, zero_is_none=True), ("limits.token_limit",)),
    Setting("time_limit", Real(0.001, 1e9, zero_is_none=True), ("limits.time_limit",)),
    Setting("budget", Real(0.000001, 1e9, zero_is_none=True), ("run.budget",)),
    Setting("price", Rates(), ("run.price",)),
    Setting("max_connections", Whole(1, 100_000, zero_is_none=True), ("run.max_connections",)),
    Setting("cache", OptionalLocation(), ("run.cache",)),
    Setting("openai_base_url", Address(), ("openai.base_url",)),
    Setting("openai_api_key", Key(), ("openai.api_key",), is_secret=True),
)

SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {setting.name: setting for setting in _ALL}
)
"""The settings by name."""


def _tables() -> dict[str, dict[str, Setting]]:
    tables: dict[str, dict[str, Setting]] = {}
    for setting in _ALL:
        for place in setting.places:
            table, key = place.split(".")
            tables.setdefault(table, {})[key] = setting
    return tables


TABLES: Final[Mapping[str, Mapping[str, Setting]]] = MappingProxyType(_tables())
"""The tables of a file, and the settings by the keys they have there."""
