"""The configuration of a run: one frozen value, resolved from command line, file and defaults.

A `RunConfig` is valid once it exists. `identity` is what decides the results of a run: two
runs with the same identity play the same episodes. Paths are relative to the working
directory, whoever gives them. The file itself is read in `config_file`.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay._util.canonical import content_hash
from assay._util.names import unknown_name
from assay._util.secret import Secret
from assay.agents.options import AgentOptions
from assay.crafter import DIFFICULTIES, Difficulty
from assay.errors import UsageError
from assay.rollouts.config_file import Given, read_config_file
from assay.rollouts.kinds import file_text
from assay.rollouts.settings import SETTINGS
from assay.stats.sequential import FEWEST_PAIRS
from assay.traces.location import DATABASE_VARIABLE, DEFAULT_DATABASE

__all__ = [
    "BASELINES",
    "COMMAND_LINE",
    "DEFAULT_MODELS",
    "Resolved",
    "RunConfig",
    "difference",
    "resolve",
]

DEFAULT_MODELS: Final = ("builtin/noop", "builtin/random", "builtin/forager", "builtin/expert")
"""Who plays if nobody is named; they need no key and no network."""
BASELINES: Final = ("builtin/noop", "builtin/random")
"""Who plays beside the models, so that their numbers have a measure."""
COMMAND_LINE: Final = "command line"
"""Who gives settings as options."""

_PLACEHOLDER: Final = "your-api-key"
_AGENT: Final = tuple(option.name for option in fields(AgentOptions))
_IDENTITY: Final = (
    "models",
    "name",
    "episodes",
    "until_decided",
    "min_effect",
    "max_turns",
    "difficulty",
    "seed",
    "baselines",
    "agent",
    "step_limit",
    "token_limit",
    "time_limit",
    "hook_hashes",
    "openai_base_url",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """All that can be chosen about a run. A value that is not allowed is a UsageError."""

    models: tuple[str, ...] = DEFAULT_MODELS
    """Who plays, in this order."""
    name: str | None = None
    """The series that every model of the run belongs to; None: each has its own."""
    episodes: int = 10
    """Episodes of each model; with `until_decided`, at most."""
    until_decided: str | None = None
    """Play until this outcome tells each model from the first; None: play all episodes."""
    min_effect: float | None = None
    """The smallest difference that matters; None: any does."""
    max_turns: int = 100
    """Model calls in an episode, at most."""
    difficulty: Difficulty = DIFFICULTIES["easy"]
    """The numbers of the worlds."""
    seed: int = 42
    """The world of the first episode; the next ones count up from it."""
    baselines: bool = True
    """Whether the baselines play too, as rows of reference."""
    agent: AgentOptions = field(default_factory=AgentOptions)
    """How the models are asked."""
    step_limit: int | None = None
    """Environment steps in an episode, at most; None: no limit but the world's."""
    token_limit: int | None = None
    """Tokens of an episode after which it ends; None: no limit."""
    time_limit: float | None = None
    """Seconds of an episode after which it ends; None: no limit."""
    hooks: tuple[Path, ...] = ()
    """Python files with hooks of the user."""
    hook_hashes: tuple[str, ...] = field(init=False, repr=False)
    """What those files held when the configuration was made."""
    metrics_from: Path | None = None
    """A Python file with metrics of the user, computed when all episodes are played."""
    metrics_hash: str | None = field(init=False, repr=False)
    """What that file held when the configuration was made."""
    database: Path = DEFAULT_DATABASE
    """The DuckDB file that traces go to."""
    service_url: str | None = None
    """Where the worlds are; None: in this process."""
    service_timeout: float = 30.0
    """Seconds that one request to the service may take."""
    concurrent_models: bool = False
    """Whether models play at the same time, not one after the other."""
    max_concurrent_models: int = 3
    """Models that play at the same time, at most."""
    max_concurrent_episodes: int = 1000
    """Episodes that are open at the same time, at most."""
    traces_dir: Path = Path("traces_multi_model")
    """The folder for the results file and one file per episode."""
    save_traces: bool = True
    """Whether each episode is also written as a file."""
    save_detailed_results: bool = True
    """Whether the results file lists the episodes one by one."""
    budget: float | None = None
    """Dollars that the whole run may spend; None: no limit."""
    price: str | None = None
    """IN/OUT in dollars per million tokens, for models whose price is not known."""
    max_connections: int | None = None
    """Calls open at once for each provider, at most; None: as many as it takes."""
    cache: Path | None = None
    """A file with replies to requests that were asked before; None: ask anew."""
    openai_base_url: str | None = None
    """Where models of the OpenAI protocol are asked; None: where each is known to be."""
    openai_api_key: Secret | None = None
    """The key for it; neither shown nor stored."""

    def __post_init__(self) -> None:
        for name in _own_settings():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, SETTINGS[name].read(value, name))
        hashes = tuple(content_hash(file_text(path).encode()) for path in self.hooks)
        object.__setattr__(self, "hook_hashes", hashes)
        own = self.metrics_from
        object.__setattr__(self, "metrics_hash", own and content_hash(file_text(own).encode()))
        if self.until_decided is not None:
            _check_comparable(self)
        if self.seed + self.episodes - 1 > 2**31 - 1:
            raise UsageError(
                f"seed {self.seed} leaves no room for {self.episodes} episodes; "
                f"give a seed of at most {2**31 - self.episodes}"
            )

    @property
    def extra_baselines(self) -> tuple[str, ...]:
        """The baselines that play beside the models, because none of these is one."""
        if not self.baselines:
            return ()
        return tuple(name for name in BASELINES if name not in self.models)

    def identity(self) -> dict[str, Any]:
        """What decides the results, as JSON; prompts and hooks count by their content."""
        stored = self.stored()
        return {name: stored[name] for name in _IDENTITY}

    def stored(self) -> dict[str, Any]:
        """The whole configuration as JSON, without secrets."""
        names = [one.name for one in fields(self)]
        secret = {name for name, setting in SETTINGS.items() if setting.is_secret}
        return {name: _plain(getattr(self, name)) for name in names if name not in secret}


class Resolved(NamedTuple):
    """A configuration, and how it came about."""

    config: RunConfig
    sources: Mapping[str, str]
    """For each setting: `command line`, `default`, a place in a file, and so on."""
    warnings: tuple[str, ...]
    """What the user should know, though nothing is wrong."""


def resolve(
    command_line: Mapping[str, Any],
    file: Path | None = None,
    *,
    stored: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    giver: str = COMMAND_LINE,
) -> Resolved:
    """Settle every setting: the command line counts before the file, the file before defaults.

    Args:
        command_line: Values by the names of the settings; None means not given. `prompt`
            is the path of a file here.
        file: A configuration file, if there is one.
        stored: The configuration of a run that is to go on, as `RunConfig.stored` gave it;
            it takes the place of the defaults. Its database is not used: the run is
            where it was found.
        environment: Variables to look at; those of the process unless given.
        giver: Who gives the values; settings have the names of options on the command line
            alone.
    """
    given = _environment(os.environ if environment is None else environment)
    given |= _of_run(stored or {})
    from_file = read_config_file(file) if file is not None else {}
    warnings = _check_key(from_file)
    given |= from_file | _of_caller(command_line, giver)
    config = _build({name: one.value for name, one in given.items()})
    sources = {name: given[name].source if name in given else "default" for name in SETTINGS}
    return Resolved(config, sources, (*warnings, *_useless(config)))


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What in two configurations, as stored, would give other results; empty if nothing.

    Lines such as `episodes: 10 -> 20`.
    """
    before, after = dict(_leaves(old)), dict(_leaves(new))
    lines = []
    for name in dict.fromkeys([*before, *after]):
        one, other = before.get(name), after.get(name)
        if one != other:
            shown = _brief(one), _brief(other)
            same = shown[0] == shown[1]
            lines.append(f"{name}: " + ("changed" if same else " -> ".join(shown)))
    return lines


def _check_comparable(config: "RunConfig") -> None:
    if len(config.models) < 2:
        raise UsageError(
            f"--until-decided compares models, and {config.models[0]!r} is the only one; give "
            "--models two names or more, the baseline first"
        )
    if config.episodes < FEWEST_PAIRS:
        raise UsageError(
            f"--until-decided looks for the first time after {FEWEST_PAIRS} worlds, and "
            f"--episodes allows {config.episodes}; allow more, 30 is a good number"
        )


def _own_settings() -> Iterator[str]:
    return (one.name for one in fields(RunConfig) if one.name in SETTINGS)


def _build(values: Mapping[str, Any]) -> RunConfig:
    agent = {name: values[name] for name in _AGENT if name in values}
    # A prompt is named by its file, and kept as its text.
    if isinstance(agent.get("prompt"), Path):
        agent["prompt"] = file_text(agent["prompt"])
    own = {name: values[name] for name in _own_settings() if name in values}
    return RunConfig(agent=AgentOptions(**agent), **own)


def _environment(environment: Mapping[str, str]) -> dict[str, Given]:
    database = environment.get(DATABASE_VARIABLE)
    if not database:
        return {}
    path = SETTINGS["database"].read(database, DATABASE_VARIABLE)
    return {"database": Given(path, f"environment {DATABASE_VARIABLE}")}


def _of_run(stored: Mapping[str, Any]) -> dict[str, Given]:
    flat = {**stored, **stored.get("agent", {})}
    given = {}
    for name, value in flat.items():
        if name not in SETTINGS or name == "database":
            continue
        if value is not None and name != "prompt":
            value = SETTINGS[name].read(value, f"{name} of the run")
        given[name] = Given(value, "the run")
    return given


def _of_caller(values: Mapping[str, Any], giver: str) -> dict[str, Given]:
    given = {}
    for name, value in values.items():
        if name not in SETTINGS:
            raise UsageError(unknown_name("setting", name, SETTINGS))
        if value is not None:
            setting = SETTINGS[name]
            label = setting.option if giver == COMMAND_LINE else name
            given[name] = Given(setting.read(value, label), giver)
    return given


def _check_key(from_file: dict[str, Given]) -> list[str]:
    """Warn of a key in a file, and drop one that only shows where a key would go."""
    key = from_file.get("openai_api_key")
    if key is None or key.value is None:
        return []
    if key.value.reveal() == _PLACEHOLDER:
        del from_file["openai_api_key"]
        return [f"{key.source} is a placeholder, not a key, and is not used"]
    return [
        f"{key.source} is a secret in a file that others may read; "
        "remove it there and set the variable OPENAI_API_KEY"
    ]


def _useless(config: RunConfig) -> Iterator[str]:
    """Warn of what was chosen and does nothing."""
    if config.min_effect is not None and config.until_decided is None:
        yield (
            f"min_effect = {config.min_effect:g} has no effect: all episodes are played; "
            "--until-decided stops earlier"
        )
    most = config.max_concurrent_models
    if config.until_decided is not None:
        if config.concurrent_models:
            yield (
                "concurrent_models has no effect: with --until-decided all models play the "
                "same worlds side by side; --max-concurrent-episodes limits how many are open"
            )
        return
    if most != RunConfig().max_concurrent_models and not config.concurrent_models:
        yield (
            f"max_concurrent_models = {most} has no effect: models play one after the other; "
            "--concurrent-models lets them play together"
        )


def _plain(value: Any) -> Any:
    """A value of a field as JSON has it."""
    if isinstance(value, (Difficulty, AgentOptions)):
        return asdict(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _leaves(configuration: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in _IDENTITY:
        value = configuration.get(name)
        if isinstance(value, Mapping):
            for key, inner in value.items():
                yield f"{name}.{key}", inner
        else:
            yield name, value


def _brief(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."
