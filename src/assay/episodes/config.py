"""Settings of a run of episodes, each declared once; see `assay.core.settings`.

Every `RunConfig` object is valid. Paths are relative to the working directory, regardless of
their source. The help of `assay run` imports this module, so heavy modules are imported where
they are used. `format_run_template` makes the configuration file that `assay init` writes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.agents.options import AgentOptions
from assay.agents.user_agents import find_agent_file
from assay.core.secrets import Secret
from assay.core.settings import Configuration, Counts, Setting, derived, list_settings, section
from assay.core.text import unknown_name
from assay.core.user_code import parse_object_spec
from assay.core.values import (
    choice,
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
from assay.crafter.difficulty import DIFFICULTIES, Difficulty, resolve_difficulty
from assay.errors import UsageError
from assay.runs.configuration import format_template
from assay.store.location import DATABASE_VARIABLE, DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.agents.chat_models import ModelSettings
    from assay.runs.kind import RunSettings

DEFAULT_MODELS: Final = ("builtin/noop", "builtin/random", "builtin/forager", "builtin/expert")
"""Models of a run without models; they need no key and no network."""
BASELINES: Final = ("builtin/noop", "builtin/random")
"""Models that are added to a run for reference."""

_LAST_SEED: Final = 2**31 - 1
NOTHING, RUN, SAMPLE, VERSION = Counts


@value_type(
    "the name of an outcome, such as achievements or reward", words="?", none=(False, "")
)
def _outcome_type(value: Any) -> str:
    """Parse the name of an outcome; True means achievements."""
    from assay.judge.outcomes import OUTCOMES

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


@value_type(
    f"one or more of {', '.join(DIFFICULTIES)}, each once, or a table of numbers",
    hint="or a list of several, or custom values, see [difficulty]",
    words="+",
    choices=tuple(DIFFICULTIES),
)
def _difficulty_type(value: Any) -> Difficulty | tuple[Difficulty, ...]:
    """Parse one or several difficulties; a single one is stored without a list."""
    if not isinstance(value, (list, tuple)):
        return resolve_difficulty(value)
    difficulties = tuple(map(resolve_difficulty, value))
    if not difficulties or len(set(difficulties)) < len(difficulties):
        raise ValueError
    return difficulties[0] if len(difficulties) == 1 else difficulties


@dataclass(frozen=True, slots=True)
class ArmTable:
    """One `[[arms]]` table: a model or an agent, and the settings that it overrides."""

    label: str
    model: str | None
    agent: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values by the names of `AgentOptions`, as stored."""


_ARM_KEYS: Final = ("label", "model", "agent", *list_settings(AgentOptions))


@value_type("tables, each with a label, a model or an agent, and its settings")
def _given_arms_type(value: Any) -> tuple[ArmTable, ...]:
    """Parse arms from a file or a program."""
    return tuple(_read_arm(_convert_arm_table(table)) for table in _check_list(value))


def _convert_arm_table(table: Any) -> Any:
    if not isinstance(table, dict) or "settings" in table:
        return table
    options = list_settings(AgentOptions)
    for name in table:
        if name not in _ARM_KEYS:
            raise UsageError(unknown_name("key in [[arms]]", name, _ARM_KEYS))
    settings = {
        name: options[name].read(value, f"[[arms]] {name}")
        for name, value in table.items()
        if name in options
    }
    entry = {part: table.get(part) for part in ("label", "model", "agent")}
    return {**entry, "settings": settings}


@value_type("tables with label, model, agent and settings")
def _arms_type(value: Any) -> tuple[ArmTable, ...]:
    """Parse stored arms."""
    return tuple(map(_read_arm, _check_list(value)))


def _read_arm(table: Any) -> ArmTable:
    if isinstance(table, ArmTable):
        return table
    if not isinstance(table, dict):
        raise ValueError
    model, agent = table.get("model"), table.get("agent")
    if model is None and agent is None:
        raise ValueError("an arm needs a model, an agent, or both")
    name_given = table.get("label") or (model if agent is None else agent)
    for name in (model, agent):
        if name is not None:
            label.read(name)
    return ArmTable(label.read(name_given), model, agent, dict(table.get("settings") or {}))


def _check_list(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise ValueError
    return list(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """A state to continue from: a stored session after some of its turns."""

    session: str
    turn: int
    """Number of turns copied from the session; 0 is the start of the episode."""
    steps: int
    """Number of environment steps copied from the session."""
    seed: int
    """Seed of the world."""
    task: int = 0
    """Index of its task within the run, counted from 0."""
    tokens: int = 0
    """Tokens of the copied turns; they count towards the token limit of the episode."""
    seconds: float = 0.0
    """Seconds of the calls of the copied turns; they count towards the time limit."""


@value_type("states of stored sessions, as 'assay fork' finds them")
def _forks_type(value: Any) -> tuple[ForkPoint, ...]:
    try:
        return tuple(
            point if isinstance(point, ForkPoint) else ForkPoint(**point)
            for point in _check_list(value)
        )
    except TypeError as error:
        raise ValueError from error


@value_type(names.allowed, words="+")
def _models_type(value: Any) -> tuple[str, ...]:
    """Parse model names; a run with agents only is stored with none."""
    if value is DEFAULT_MODELS or value in ([], ()):
        return tuple(value)
    return tuple(names.read(value))


def _read_content(path: Path) -> bytes:
    """Read an agent file: weights, or code, whose reading errors are explained."""
    return path.read_bytes() if path.suffix == ".safetensors" else file_text(path).encode()


@value_type("one or more agents, each once, such as mine.py:act", words="+")
def _agents_type(value: Any) -> tuple[str, ...]:
    """Parse user-defined agents: `file.py:name`, or a name registered from Python."""
    return tuple(names.read(value)) if value else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig(Configuration):
    """Configuration of a run; an invalid value raises UsageError."""

    models: tuple[str, ...] = Setting(
        DEFAULT_MODELS,
        _models_type,
        RUN,
        given=names,
        at="run experiment eval.model_name",
        group="Models and worlds",
        aliases=("--model",),
    ).about("Models to run")
    agents: tuple[str, ...] = Setting((), _agents_type, RUN, at="run", added=True).about(
        "Your own agents: a function or class in a Python file, such as mine.py:act, or a "
        "trained policy, such as checkpoint:training/mine"
    )
    agent_hashes: tuple[str, ...] = derived((), RUN, added=True)
    """Content hashes of the agent files, when the configuration was made."""
    arms: tuple[ArmTable, ...] = Setting(
        (), _arms_type, RUN, at="[arms]", added=True, given=_given_arms_type, in_files=True
    ).about("Models or agents with individual settings, such as a second prompt")
    episodes: int = Setting(10, whole(1, 1_000_000), SAMPLE, at="experiment eval").about(
        "Episodes per model; with --until-decided, the maximum"
    )
    until_decided: str | None = Setting(
        None, _outcome_type, SAMPLE, at="experiment eval"
    ).about(
        "Stop when this outcome shows how each model differs from the first; achievements if "
        "no value is given"
    )
    min_effect: float | None = Setting(
        None, real(1e-9, 1e9), SAMPLE, at="experiment eval", without="any difference"
    ).about("With --until-decided: smallest difference that matters")
    max_turns: int = Setting(100, whole(1, 1_000_000), at="experiment eval.max_steps").about(
        "Maximum number of turns (model calls) in an episode"
    )
    difficulty: Difficulty | tuple[Difficulty, ...] = Setting(
        "easy", _difficulty_type, at="experiment eval [difficulty]"
    ).about("Rules of the worlds; several values are allowed")
    environment: str | None = Setting(
        None,
        label,
        at="experiment eval",
        added=True,
        example="gymnasium:CartPole-v1",
        without="Crafter",
    ).about(
        "Another environment: your own class, such as mine.py:World, or a Gymnasium id, such "
        "as gymnasium:CartPole-v1"
    )
    environment_hash: str | None = derived(None, VERSION, added=True)
    """Content hash of the environment file, when the configuration was made."""
    replicates: int = Setting(
        1, whole(1, 1000), SAMPLE, at="experiment eval", added=True
    ).about("Number of episodes per model and world")
    forks: tuple[ForkPoint, ...] = Setting(
        (), _forks_type, SAMPLE, added=True, in_files=True
    ).about("States of stored episodes to continue from; 'assay fork' finds them")
    seed: int = Setting(42, whole(0, _LAST_SEED), SAMPLE, at="experiment eval").about(
        "Seed of the first world; the others follow by 1. All models play the same worlds"
    )
    baselines: bool = Setting(True, flag, RUN, at="run").about(
        "Also run builtin/noop and builtin/random for comparison"
    )
    name: str | None = Setting(
        None, label, RUN, at="run", example="my series", without="the model's name"
    ).about("Series that the results are added to")
    concurrent_models: bool = Setting(
        False, flag, NOTHING, at="run", group="Concurrency"
    ).about("Run models at the same time, not one after another")
    max_concurrent_models: int = Setting(3, whole(1, 1000), NOTHING, at="run").about(
        "With --concurrent-models: maximum number of models at the same time"
    )
    max_concurrent_episodes: int = Setting(1000, whole(1, 100_000), NOTHING, at="run").about(
        "Maximum number of episodes at the same time; if not given, also at most 25 % more "
        "than open calls, but at least 16"
    )
    executor: str = Setting(
        "asyncio", choice("asyncio", "processes", "ray"), NOTHING, at="run", added=True
    ).about(
        "Where episodes are run: asyncio is this process, processes are worker processes, "
        "ray are workers on the nodes of a Ray cluster"
    )
    workers: int | None = Setting(
        None, whole(1, 1024), NOTHING, at="run", added=True, without="one per CPU"
    ).about("With --executor processes or ray: maximum number of workers")
    ray_address: str = Setting("auto", label, NOTHING, at="run", added=True).about(
        "With --executor ray: HOST:PORT of the cluster's head, auto for the cluster this "
        "machine belongs to, local to start one for this run"
    )
    agent: AgentOptions = section(AgentOptions, VERSION, group="How models are called")
    step_limit: int | None = Setting(
        None, whole(1, 10**9), at="limits", group="Limits of an episode", without="none"
    ).about("Maximum number of environment steps in an episode")
    token_limit: int | None = Setting(
        None, whole(1, 10**15), at="limits", without="none"
    ).about("End an episode after this many tokens")
    time_limit: float | None = Setting(
        None, real(0.001, 1e9), at="limits", without="none"
    ).about("End an episode after this many seconds, not counting time in the queue")
    decision_limit: float = Setting(60.0, real(0.01, 86_400), at="limits", added=True).about(
        "Maximum seconds for your own code: an agent per decision (without model calls), hooks "
        "per turn, a metric per call"
    )
    budget: float | None = Setting(
        None,
        real(0.000001, 1e9),
        NOTHING,
        at="run",
        group="Providers and budget",
        without="none",
    ).about(
        "Maximum cost in dollars; the run then stops and can be resumed with a larger budget"
    )
    price: str | None = Setting(None, rates, NOTHING, at="run").about(
        "Price of models without a known price: IN/OUT in dollars per million tokens"
    )
    max_connections: int | None = Setting(
        None, whole(1, 100_000), NOTHING, at="run", without="as many as the provider accepts"
    ).about("Maximum number of calls at the same time per provider")
    call_patience: float = Setting(
        120.0, real(0.1, 86_400), NOTHING, at="run", added=True
    ).about("Give up on a call that keeps failing after this many seconds")
    cache: Path | None = Setting(None, path, NOTHING, at="run").about(
        "File that caches replies, so that repeated requests cost nothing"
    )
    openai_base_url: str | None = Setting(None, url, at="openai.base_url").about(
        "Server for OpenAI models and for unlisted models, such as a vLLM server at "
        "http://localhost:8000/v1"
    )
    openai_api_key: Secret | None = Setting(
        None, key, NOTHING, at="openai.api_key", secret="OPENAI_API_KEY"
    ).about("Do not put a key into a file: set the environment variable OPENAI_API_KEY")
    database: Path = Setting(
        DEFAULT_DATABASE,
        path,
        NOTHING,
        at="services.database_path",
        group="Files and services",
        variable=DATABASE_VARIABLE,
    ).about("DuckDB file for traces")
    service_url: str | None = Setting(
        None,
        url,
        NOTHING,
        at="services.crafter_service_url service.base_url",
        without="in this process",
    ).about("Crafter service that runs the worlds, such as http://localhost:8901")
    service_timeout: float = Setting(
        30.0, real(0.1, 86_400), NOTHING, at="service.timeout"
    ).about("Timeout of a request to that service, in seconds")
    hooks: tuple[Path, ...] = Setting((), text_files, NOTHING, at="run").about(
        "Python files with your own hooks"
    )
    hook_hashes: tuple[str, ...] = derived((), RUN)
    """Content hashes of the hook files, when the configuration was made."""
    metrics_from: Path | None = Setting(None, text_file, NOTHING, at="run").about(
        "Python file with your own metrics, computed for each episode"
    )
    metrics_hash: str | None = derived(None, NOTHING)
    """Content hash of the metrics file, when the configuration was made."""
    traces_dir: Path = Setting(
        "traces_multi_model", path, NOTHING, at="output", beside=("eval", "traces_v2_synth")
    ).about("Folder for the results file and the episode files")
    save_traces: bool = Setting(True, flag, NOTHING, at="output").about(
        "Also write a file per episode"
    )
    save_detailed_results: bool = Setting(True, flag, NOTHING, at="output").about(
        "List every episode in the results file"
    )

    def complete(self) -> None:
        """Add the hashes of files, and check the combination of settings."""
        from assay.core.canonical_json import content_hash

        hashes = tuple(content_hash(file_text(path).encode()) for path in self.hooks)
        object.__setattr__(self, "hook_hashes", hashes)
        metrics_file = self.metrics_from
        object.__setattr__(
            self,
            "metrics_hash",
            metrics_file and content_hash(file_text(metrics_file).encode()),
        )
        specs = dict.fromkeys((*self.agents, *(arm.agent for arm in self.arms if arm.agent)))
        files = [file for file in map(find_agent_file, specs) if file is not None]
        hashes = tuple(content_hash(_read_content(path)) for path in files)
        object.__setattr__(self, "agent_hashes", hashes)
        environment_spec = parse_object_spec(self.environment or "")
        if environment_spec is not None:
            sha = content_hash(file_text(environment_spec.path).encode())
            object.__setattr__(self, "environment_hash", sha)
        if self.models is DEFAULT_MODELS and (self.agents or self.arms):
            # The default models do not play if other entries were named.
            object.__setattr__(self, "models", ())
        elif self.models is DEFAULT_MODELS and self.environment is not None:
            object.__setattr__(self, "models", ("builtin/random",))
        if self.environment is not None and self.difficulty != DIFFICULTIES["easy"]:
            raise UsageError(
                f"difficulty applies only to Crafter, and the environment is "
                f"{self.environment}; leave out one of them"
            )
        if not (self.models or self.agents or self.arms):
            raise UsageError(f"models: () is not allowed; give {names.allowed}")
        if self.until_decided is not None:
            self._check_comparable()
        if self.seed + self.episodes - 1 > _LAST_SEED:
            raise UsageError(
                f"seed {self.seed} is too large for {self.episodes} episodes; "
                f"give a seed of at most {_LAST_SEED + 1 - self.episodes}"
            )

    def _check_comparable(self) -> None:
        from assay.stats.sequential import FEWEST_PAIRS

        if self.environment is not None:
            self._check_decidable()
        if len(self.models) < 2 and not (self.agents or self.arms):
            raise UsageError(
                f"--until-decided compares models, and {self.models[0]!r} is the only one; "
                "give two or more --models, the baseline first"
            )
        if self.trials > self.episodes:
            raise UsageError(
                "--until-decided needs one episode per world and model; give one --difficulty "
                "and leave out --replicates"
            )
        if self.episodes < FEWEST_PAIRS:
            raise UsageError(
                f"the first interim analysis of --until-decided needs {FEWEST_PAIRS} worlds, "
                f"and --episodes is {self.episodes}; give more, such as 30"
            )

    def _check_decidable(self) -> None:
        from assay.episodes.totals import EpisodeTotals

        if self.until_decided == "achievements":
            # The default metric does not exist in other environments.
            object.__setattr__(self, "until_decided", "reward")
        common = EpisodeTotals().common_outcomes(0.0)
        if self.until_decided not in common:
            raise UsageError(
                f"--until-decided {self.until_decided} does not exist in {self.environment}; "
                f"choose from: {', '.join(common)}"
            )

    def warnings(self) -> Iterator[str]:
        """Yield a warning for each setting that has no effect."""
        if self.min_effect is not None and self.until_decided is None:
            yield (f"min_effect = {self.min_effect:g} has no effect without --until-decided")
        if self.workers is not None and self.executor == "asyncio":
            yield (
                f"workers = {self.workers} has no effect: episodes run in this process; "
                "--executor processes runs them in workers"
            )
        if self.ray_address != "auto" and self.executor != "ray":
            yield (f"ray_address = {self.ray_address!r} has no effect without --executor ray")
        limit = self.max_concurrent_models
        if self.until_decided is not None:
            if self.concurrent_models:
                yield (
                    "concurrent_models has no effect: with --until-decided all models run at "
                    "the same time; --max-concurrent-episodes limits the number of episodes"
                )
        elif limit != SETTINGS["max_concurrent_models"].default and not self.concurrent_models:
            yield (
                f"max_concurrent_models = {limit} has no effect without --concurrent-models: "
                "models run one after another"
            )

    @property
    def added_baselines(self) -> tuple[str, ...]:
        """Baselines that are added because the user did not name them."""
        if not self.baselines:
            return ()
        # Doing nothing is an action of Crafter only.
        baselines = BASELINES if self.environment is None else BASELINES[1:]
        return tuple(name for name in baselines if name not in self.models)

    @property
    def difficulties(self) -> tuple[Difficulty, ...]:
        """Tasks of the run."""
        value = self.difficulty
        return value if isinstance(value, tuple) else (value,)

    @property
    def difficulty_names(self) -> tuple[str, ...]:
        """Names of the tasks of the run."""
        from assay.episodes.spec import name_difficulty

        return tuple(map(name_difficulty, self.difficulties))

    @property
    def trials(self) -> int:
        """Episodes per arm, from `episodes`, tasks or `forks`, and `replicates`."""
        if self.forks:
            return len(self.forks) * self.replicates
        return self.episodes * len(self.difficulties) * self.replicates

    @property
    def worlds(self) -> Iterator[tuple[int, int]]:
        """Worlds of the run, each as task index and seed."""
        if self.forks:
            yield from dict.fromkeys((point.task, point.seed) for point in self.forks)
            return
        for number in range(self.episodes):
            for task in range(len(self.difficulties)):
                yield task, self.seed + number

    def make_model_settings(self) -> "ModelSettings":
        """Return the settings for calling models."""
        from assay.agents.chat_models import ModelSettings

        return ModelSettings.from_config(
            self, seed=self.seed, added_baselines=self.added_baselines
        )

    def make_run_settings(self) -> "RunSettings":
        """Return the settings that the run itself uses."""
        from assay.judge.outcomes import LOWER_IS_BETTER
        from assay.runs.kind import RunSettings

        return RunSettings(
            database=self.database,
            max_open=self.max_concurrent_episodes,
            max_arms=self.max_concurrent_models if self.concurrent_models else 1,
            executor=self.executor,
            workers=self.workers,
            ray_address=self.ray_address,
            traces_dir=self.traces_dir,
            save_traces=self.save_traces,
            save_detailed_results=self.save_detailed_results,
            until_decided=self.until_decided,
            min_effect=self.min_effect,
            less_is_better=self.until_decided in LOWER_IS_BETTER,
        )


SETTINGS: Final = list_settings(RunConfig)
"""Settings by name."""
UNLOGGED: Final = frozenset(
    key for key, counts in RunConfig.counted().items() if counts < SAMPLE
)
"""Keys of a stored configuration that do not change what is played, such as paths, other
models and concurrency; a changelog omits them.
"""

_HEAD: Final = """\
# Settings for 'assay run --config FILE'. Each key has its default or an example: remove the
# '#' in front of a key to set it. Command-line options override this file. Paths are relative
# to the folder in which the command is started.
# These keys are also read: [eval] model_name, episodes, max_steps (turns), difficulty, seed;
# [service] base_url; [experiment] models."""
_NUMBERS: Final = """\
[difficulty]
# A custom difficulty, instead of a named one. The defaults are the values of classic, shown
# here; docs/crafter.md describes them."""

_ARMS: Final = """\
# Entries with their own settings, one table each, such as two prompts for one model.
# [[arms]]
# label = "careful"
# model = "builtin/expert"
# prompt = "careful.txt"
# temperature = 0.5"""


def format_run_template() -> str:
    """Return the text of the configuration file with every setting commented out."""
    numbers = [
        f"#{name} = {number}" for name, number in asdict(DIFFICULTIES["classic"]).items()
    ]
    return format_template(RunConfig, _HEAD, "\n".join([_NUMBERS, *numbers]) + f"\n\n{_ARMS}")
