"""The settings of a run in Crafter, each declared once; see `assay._util.settings`.

A `RunConfig` is valid once it exists. Paths are relative to the working directory, whoever
gives them. The help of `assay run` needs this module, so what is heavy is imported where it
is used.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay._util.names import unknown_name
from assay._util.secret import Secret
from assay._util.settings import Configuration, Counts, Setting, derived, section, settings_of
from assay._util.values import (
    ValueType,
    file_text,
    flag,
    key,
    label,
    names,
    path,
    rates,
    real,
    text_file,
    text_files,
    url,
    value_type,
    whole,
)
from assay.agents.options import AgentOptions
from assay.crafter.difficulty import DIFFICULTIES, Difficulty, resolve_difficulty
from assay.errors import UsageError
from assay.traces.location import DATABASE_VARIABLE, DEFAULT_DATABASE

__all__ = ["BASELINES", "DEFAULT_MODELS", "SETTINGS", "UNLOGGED", "RunConfig"]

DEFAULT_MODELS: Final = ("builtin/noop", "builtin/random", "builtin/forager", "builtin/expert")
"""Who plays if nobody is named; they need no key and no network."""
BASELINES: Final = ("builtin/noop", "builtin/random")
"""Who plays beside the models, so that their numbers have a measure."""

_LAST_SEED: Final = 2**31 - 1
NOTHING, RUN, SAMPLE, VERSION = Counts


@value_type(
    "the name of an outcome, such as achievements or reward", words="?", none=(False, "")
)
def _outcome(value: Any) -> str:
    """One of the numbers that an episode earns; true alone stands for achievements."""
    from assay.metrics.tally import OUTCOMES

    # An option without a value is an empty tuple.
    if isinstance(value, (list, tuple)) and len(value) < 2:
        value = value[0] if value else True
    if value is True:
        return "achievements"
    if not isinstance(value, str):
        raise ValueError
    if value not in OUTCOMES:
        short = [name for name in OUTCOMES if "/" in value or "/" not in name]
        raise UsageError(unknown_name("outcome", value, short))
    return value


_difficulty: Final = ValueType(
    resolve_difficulty,
    f"one of {', '.join(DIFFICULTIES)}, or a table of numbers",
    hint="or numbers of your own, see [difficulty]",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig(Configuration):
    """All that can be chosen about a run. A value that is not allowed is a UsageError."""

    models: tuple[str, ...] = Setting(
        DEFAULT_MODELS,
        names,
        RUN,
        at="run experiment eval.model_name",
        group="Who plays, and what",
        aliases=("--model",),
    ).about("Who plays: names of models, each once")
    episodes: int = Setting(10, whole(1, 1_000_000), SAMPLE, at="experiment eval").about(
        "Episodes of each model; with --until-decided, at most"
    )
    until_decided: str | None = Setting(None, _outcome, SAMPLE, at="experiment eval").about(
        "Play until an outcome, such as reward, tells each model from the first; achievements "
        "if none is named"
    )
    min_effect: float | None = Setting(
        None, real(1e-9, 1e9), SAMPLE, at="experiment eval"
    ).about("With --until-decided: the smallest difference that matters; without it, any does")
    max_turns: int = Setting(100, whole(1, 1_000_000), at="experiment eval.max_steps").about(
        "Model calls in an episode, at most"
    )
    difficulty: Difficulty = Setting(
        "easy", _difficulty, at="experiment eval [difficulty]"
    ).about("The rules of the worlds: classic, easy, medium or hard")
    seed: int = Setting(42, whole(0, _LAST_SEED), SAMPLE, at="experiment eval").about(
        "The world of the first episode; the next ones count up, and all models play the same"
    )
    baselines: bool = Setting(True, flag, RUN, at="run").about(
        "Let builtin/noop and builtin/random play too, for comparison"
    )
    name: str | None = Setting(None, label, RUN, at="run", example="my series").about(
        "The series to follow over time; without it, each model is a series of its own"
    )
    concurrent_models: bool = Setting(False, flag, NOTHING, at="run", group="At once").about(
        "Let models play at the same time, not one after the other"
    )
    max_concurrent_models: int = Setting(3, whole(1, 1000), NOTHING, at="run").about(
        "Models that then play at the same time, at most"
    )
    max_concurrent_episodes: int = Setting(1000, whole(1, 100_000), NOTHING, at="run").about(
        "Episodes open at the same time, at most"
    )
    agent: AgentOptions = section(AgentOptions, VERSION, group="How models are asked")
    step_limit: int | None = Setting(
        None, whole(1, 10**9), at="limits", group="Limits of an episode"
    ).about("Environment steps of an episode, at most")
    token_limit: int | None = Setting(None, whole(1, 10**15), at="limits").about(
        "Tokens after which an episode ends"
    )
    time_limit: float | None = Setting(None, real(0.001, 1e9), at="limits").about(
        "Seconds after which an episode ends; waiting for its turn does not count"
    )
    budget: float | None = Setting(
        None, real(0.000001, 1e9), NOTHING, at="run", group="Providers and money"
    ).about("Dollars that the whole run may spend; it stops there and can be resumed with more")
    price: str | None = Setting(None, rates, NOTHING, at="run").about(
        "IN/OUT in dollars per million tokens, for models whose price is not known"
    )
    max_connections: int | None = Setting(None, whole(1, 100_000), NOTHING, at="run").about(
        "Calls open at once for each provider, at most; without it, as many as it takes"
    )
    cache: Path | None = Setting(None, path, NOTHING, at="run").about(
        "A file that keeps replies, for reruns of the same requests that cost nothing"
    )
    openai_base_url: str | None = Setting(None, url, at="openai.base_url").about(
        "Where models are asked that are OpenAI's or in no list, such as those of vLLM"
    )
    openai_api_key: Secret | None = Setting(
        None, key, NOTHING, at="openai.api_key", secret="OPENAI_API_KEY"
    ).about("A key does not belong in a file: set the variable OPENAI_API_KEY")
    database: Path = Setting(
        DEFAULT_DATABASE,
        path,
        NOTHING,
        at="services.database_path",
        group="Files and services",
        variable=DATABASE_VARIABLE,
    ).about("The DuckDB file that traces go to")
    service_url: str | None = Setting(
        None, url, NOTHING, at="services.crafter_service_url service.base_url"
    ).about("Where the worlds are, such as http://localhost:8901; without it, in this process")
    service_timeout: float = Setting(
        30.0, real(0.1, 86_400), NOTHING, at="service.timeout"
    ).about("Seconds that one request to the service may take")
    hooks: tuple[Path, ...] = Setting((), text_files, NOTHING, at="run").about(
        "Python files with hooks of your own"
    )
    hook_hashes: tuple[str, ...] = derived((), RUN)
    """What those files held when the configuration was made."""
    metrics_from: Path | None = Setting(None, text_file, NOTHING, at="run").about(
        "A Python file with metrics of your own, stored as outcomes of every episode"
    )
    metrics_hash: str | None = derived(None, NOTHING)
    """What that file held when the configuration was made."""
    traces_dir: Path = Setting("traces_multi_model", path, NOTHING, at="output").about(
        "The folder for the results file and the files of episodes"
    )
    save_traces: bool = Setting(True, flag, NOTHING, at="output").about(
        "Write a file for each episode too"
    )
    save_detailed_results: bool = Setting(True, flag, NOTHING, at="output").about(
        "List every episode in the results file"
    )

    def complete(self) -> None:
        """Add the hashes of files, and check what settings say together."""
        from assay._util.canonical import content_hash

        hashes = tuple(content_hash(file_text(path).encode()) for path in self.hooks)
        object.__setattr__(self, "hook_hashes", hashes)
        own = self.metrics_from
        object.__setattr__(self, "metrics_hash", own and content_hash(file_text(own).encode()))
        if self.until_decided is not None:
            self._check_comparable()
        if self.seed + self.episodes - 1 > _LAST_SEED:
            raise UsageError(
                f"seed {self.seed} leaves no room for {self.episodes} episodes; "
                f"give a seed of at most {_LAST_SEED + 1 - self.episodes}"
            )

    def _check_comparable(self) -> None:
        from assay.stats.sequential import FEWEST_PAIRS

        if len(self.models) < 2:
            raise UsageError(
                f"--until-decided compares models, and {self.models[0]!r} is the only one; "
                "give --models two names or more, the baseline first"
            )
        if self.episodes < FEWEST_PAIRS:
            raise UsageError(
                f"--until-decided looks for the first time after {FEWEST_PAIRS} worlds, and "
                f"--episodes allows {self.episodes}; allow more, 30 is a good number"
            )

    def warnings(self) -> Iterator[str]:
        """Say what was chosen and does nothing."""
        if self.min_effect is not None and self.until_decided is None:
            yield (
                f"min_effect = {self.min_effect:g} has no effect: all episodes are played; "
                "--until-decided stops earlier"
            )
        most = self.max_concurrent_models
        if self.until_decided is not None:
            if self.concurrent_models:
                yield (
                    "concurrent_models has no effect: with --until-decided all models play "
                    "the same worlds side by side; --max-concurrent-episodes limits how many "
                    "are open"
                )
        elif most != SETTINGS["max_concurrent_models"].default and not self.concurrent_models:
            yield (
                f"max_concurrent_models = {most} has no effect: models play one after the "
                "other; --concurrent-models lets them play together"
            )

    @property
    def extra_baselines(self) -> tuple[str, ...]:
        """The baselines that play beside the models, because none of these is one."""
        if not self.baselines:
            return ()
        return tuple(name for name in BASELINES if name not in self.models)


SETTINGS: Final = settings_of(RunConfig)
"""The settings by name."""
UNLOGGED: Final = frozenset(
    key for key, counts in RunConfig.counted().items() if counts < SAMPLE
)
"""Keys of a stored configuration that say where, beside whom and how fast, and not what is
played; a changelog passes over them."""
