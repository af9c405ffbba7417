"""Settings of a benchmark: a TOML file with tasks. Each key is declared once.

    name = "my_benchmark"
    parallel = 4

    [defaults]                # apply to every task that does not override them
    agent = "react-coder"

    [[tasks]]
    prepared_dir = "data/tasks/prepared/task_1"
    model = "gpt-4o-mini"
    rollouts = 3

Unknown tables and keys are errors. Every distinct combination of agent, model and settings is a
separate arm, so that a parameter sweep or a comparison of models is never averaged together.
This module reads files and starts nothing.
"""

import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from assay.bench.base import Allowed
from assay.bench.coders.installation import choose_default_agent, find_installed_agent
from assay.bench.options import TaskReplacements
from assay.core.canonical_json import canonical_json
from assay.core.options import takes_options
from assay.core.secrets import Secret, has_secret
from assay.core.settings import Configuration, Counts, Setting, derived
from assay.core.text import unknown_name
from assay.core.user_code import ObjectSpec, parse_object_spec
from assay.core.values import (
    ValueType,
    choice,
    file_text,
    flag,
    key,
    label,
    path,
    rates,
    real,
    text,
    url,
    value_type,
    whole,
)
from assay.errors import UsageError
from assay.runs.kind import Arm, RunSettings
from assay.sandboxes.base import ResourceLimits
from assay.store.location import DATABASE_VARIABLE, DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.agents.chat_models import ModelSettings

DEFAULT_AGENT: Final = "react-coder"
TIMEOUT_VARIABLE: Final = "TIMEOUT_SEC"
"""Environment variable of a task that sets the time limit of its agent."""
_SANDBOX_VARIABLE: Final = "SANDBOX_BACKEND"
_SECRET_NAME: Final = re.compile(
    r"(^|_)(KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE
)
NOTHING, RUN, SAMPLE, VERSION = Counts


@value_type("a table of variables, such as { TIMEOUT_SEC = '1800' }")
def _parse_variables(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError
    for name, content in value.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ValueError(f"{name!r} is not a valid variable name")
        if not isinstance(content, str) or "\0" in content:
            raise ValueError(f"{name} is not a string; write it in quotes")
        if _SECRET_NAME.search(name) or has_secret(content):
            raise ValueError(
                f"{name} looks like a secret; secrets must not be in a sandbox or a file, "
                "and models are called from outside the sandbox"
            )
    return dict(value)


@value_type("a table such as { 'ubuntu:24.04' = 'roots/noble' }, or NAME=LOCAL")
def _parse_base_images(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        value = [f"{name}={target}" for name, target in value.items()]
    if not isinstance(value, (list, tuple)):
        raise ValueError
    for pair in value:
        name, _, target = str(pair).partition("=")
        if not (name and target):
            raise ValueError(f"{pair!r} is not NAME=LOCAL")
    return tuple(value)


@value_type("'public', HOST or HOST:PORT, or a list of them")
def _parse_destinations(value: Any) -> tuple[str, ...]:
    destinations = [value] if isinstance(value, str) else value
    if not isinstance(destinations, (list, tuple)) or not all(
        isinstance(destination, str) for destination in destinations
    ):
        raise ValueError
    from assay.sandboxes.egress import parse_destination

    for destination in destinations:
        parse_destination(destination)
    return tuple(destinations)


@value_type("a list of strings, such as ['../library']")
def _parse_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError
    return tuple(map(text(4096).read, value))


@value_type("the name of an agent, or a class in a file, such as my_agent.py:MyAgent")
def _parse_agent(value: Any) -> str:
    is_class_in_file = isinstance(value, str) and parse_object_spec(value)
    return str(text(4096).read(value) if is_class_in_file else label.read(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntry:
    """One `[[tasks]]` table: a task, the agent and model that work on it, and its rollouts."""

    prepared_dir: str
    """Path as given, not made absolute; also in the record of a run."""
    model: str | None = None
    rollouts: int = 1
    apply_overrides: bool | None = None
    overrides: str | None = None
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    agent: str = DEFAULT_AGENT
    command: str | None = None
    label: str | None = None
    sandbox: str = "bubblewrap"
    timeout: float = 1800.0
    setup_timeout: float = 600.0
    grading_timeout: float = 600.0
    token_limit: int | None = None
    cost_limit: float | None = None
    max_turns: int = 100
    temperature: float | None = None
    max_tokens: int = 4096
    cpus: float | None = None
    memory_mb: int | None = None
    processes: int | None = None
    disk_mb: int | None = None
    network: bool | None = None

    @property
    def limits(self) -> dict[str, float]:
        """Values given for fields of `ResourceLimits`."""
        names = [limit.name for limit in fields(ResourceLimits)]
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def collect_changed_settings(self) -> dict[str, Any]:
        """Return the values that differ from their defaults.

        Task, rollouts, agent, model, label, overrides and variables are not included.
        """
        excluded = {"prepared_dir", "rollouts", "agent", "model", "label", "overrides"}
        excluded |= {"apply_overrides", "environment_variables"}
        return {
            setting.name: getattr(self, setting.name)
            for setting in fields(self)
            if setting.name not in excluded and getattr(self, setting.name) != setting.default
        }


_KEYS: Final[Mapping[str, ValueType]] = {
    "prepared_dir": text(4096),
    "model": label,
    "rollouts": whole(1, 100_000),
    "apply_overrides": flag,
    "overrides": text(4096),
    "environment_variables": _parse_variables,
    "agent": _parse_agent,
    "command": text(100_000),
    "label": label,
    "sandbox": label,
    "timeout": real(0.1, 604_800),
    "setup_timeout": real(0.1, 604_800),
    "grading_timeout": real(0.1, 604_800),
    "token_limit": whole(1, 10**12),
    "cost_limit": real(0.000001, 1e9),
    "max_turns": whole(1, 100_000),
    "temperature": real(0, 2),
    "max_tokens": whole(1, 10**6),
    "cpus": real(0.01, 1024),
    "memory_mb": whole(16, 10**7),
    "processes": whole(2, 10**6),
    "disk_mb": whole(1, 10**7),
    "network": flag,
}
"""Keys of a task and their value types."""
_TOP_KEYS: Final = (
    *("name", "parallel", "judge", "judge_votes", "base_images", "build_network"),
    *("allow_network", "allow_repos", "allow_variables"),
    *("defaults", "tasks"),
)


@value_type("tables, each with a prepared_dir")
def _parse_entries(value: Any) -> tuple[TaskEntry, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError
    return tuple(
        entry if isinstance(entry, TaskEntry) else _parse_entry(entry, f"task {number}")
        for number, entry in enumerate(value, 1)
    )


def _parse_entry(table: Any, where: str) -> TaskEntry:
    if not isinstance(table, Mapping):
        raise UsageError(f"{where} is not a table; write [[tasks]] with its keys below it")
    values = {name: _parse_value(name, value, where) for name, value in table.items()}
    if "prepared_dir" not in values:
        raise UsageError(f"{where} has no prepared_dir; give the folder of a prepared task")
    variables = values.get("environment_variables", {})
    if TIMEOUT_VARIABLE in variables:
        seconds = _parse_timeout(variables[TIMEOUT_VARIABLE], where)
        if values.setdefault("timeout", seconds) != seconds:
            raise UsageError(
                f"{where}: timeout is {values['timeout']:g}, but {TIMEOUT_VARIABLE} is "
                f"{seconds:g}; both set the agent's time limit, so remove one of them"
            )
    if values.get("agent") == "command" and "command" not in values:
        raise UsageError(
            f"{where}: agent 'command' requires the key 'command' (a command line)"
        )
    return TaskEntry(**values)


def _parse_value(name: str, value: Any, where: str) -> Any:
    key_type = _KEYS.get(name)
    if key_type is None:
        raise UsageError(f"{where}: {unknown_name('key', name, _KEYS)}")
    if value is None:
        return None  # a stored run has None for keys that were not given
    try:
        return key_type.read(value)
    except UsageError as error:
        raise UsageError(f"{where}: {name}: {error}") from error
    except ValueError as error:
        reason = f" ({error})" if str(error) else ""
        # A variable may contain a secret, so the message does not repeat it.
        shown = "this" if key_type is _parse_variables else repr(value)
        raise UsageError(
            f"{where}: {name}: {shown} is not allowed{reason}; give {key_type.allowed}"
        ) from error


def _parse_timeout(value: str, where: str) -> float:
    try:
        return float(_KEYS["timeout"].read(float(value)))
    except ValueError as error:
        raise UsageError(
            f"{where}: {TIMEOUT_VARIABLE} is {value!r}; give the agent's time limit in "
            "seconds, such as '1800'"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig(Configuration):
    """Settings of a benchmark. Invalid values raise UsageError."""

    name: str = Setting("benchmark", label, RUN, group="Task overrides").about(
        "Name of the benchmark"
    )
    config_file: str = Setting("", ValueType(str, "a path"), NOTHING).about(
        "Path of the benchmark file, as given"
    )
    tasks: tuple[TaskEntry, ...] = Setting((), _parse_entries, RUN, in_files=True).about(
        "Tasks of the benchmark"
    )
    checksums: tuple[str, ...] = Setting(
        (), ValueType(tuple, "hashes"), RUN, in_files=True
    ).about("Hash of the content of each task, including overrides")
    agent_hashes: tuple[str, ...] = Setting(
        (), ValueType(tuple, "hashes"), RUN, in_files=True, added=True
    ).about("Hash of the file of each agent that is a Python class")
    judge: str | None = Setting(None, label, RUN, without="none").about(
        "Model that scores rubrics without tests"
    )
    judge_votes: int = Setting(3, whole(1, 25), RUN).about(
        "Number of votes of the judge for each rubric"
    )
    parallel: int = Setting(1, whole(1, 10_000), NOTHING).about(
        "Maximum number of concurrent trials, including rollouts"
    )
    executor: str = Setting(
        "asyncio", choice("asyncio", "processes", "ray"), NOTHING, added=True
    ).about("Where to run trials: asyncio (this process), processes, or ray for a cluster")
    workers: int | None = Setting(
        None, whole(1, 1024), NOTHING, added=True, without="one per CPU"
    ).about("Maximum number of workers, with --executor processes or ray")
    ray_address: str = Setting("auto", label, NOTHING, added=True).about(
        "Address of the Ray cluster: HOST:PORT of its head, auto or local"
    )
    stamp: str = Setting("", ValueType(str, "a time"), NOTHING, in_files=True).about(
        "Start time, which is used in folder names"
    )
    data_dir: Path = Setting("data", path, NOTHING).about(
        "Folder for rollouts and files of trials"
    )
    database: Path = Setting(DEFAULT_DATABASE, path, NOTHING, variable=DATABASE_VARIABLE).about(
        "DuckDB file for traces"
    )
    budget: float | None = Setting(None, real(0.000001, 1e9), NOTHING, without="none").about(
        "Maximum cost of all trials together in dollars, including the judge"
    )
    price: str | None = Setting(None, rates, NOTHING).about(
        "Price of models without a known price: IN/OUT in dollars per million tokens"
    )
    max_connections: int | None = Setting(
        None, whole(1, 100_000), NOTHING, without="as many as the provider accepts"
    ).about("Maximum number of concurrent calls per provider")
    call_patience: float = Setting(120.0, real(0.1, 86_400), NOTHING).about(
        "Give up on a failing call after this many seconds of retries"
    )
    base_images: tuple[str, ...] = Setting((), _parse_base_images, NOTHING, added=True).about(
        "Replacements of FROM images, as NAME=LOCAL: a folder, a tar file or an image"
    )
    build_network: bool = Setting(False, flag, NOTHING, added=True).about(
        "Allow network access while images are built"
    )
    allow_network: tuple[str, ...] = Setting((), _parse_destinations, RUN, added=True).about(
        "HTTP(S) destinations for tasks that request a network: public, HOST or HOST:PORT"
    )
    allow_repos: tuple[str, ...] = Setting((), _parse_texts, NOTHING, added=True).about(
        "Paths outside a task's folder that its git_url may use"
    )
    allow_variables: tuple[str, ...] = Setting((), _parse_texts, NOTHING, added=True).about(
        "Environment variables that ${NAME} in a Harbor task may refer to"
    )
    cache: Path | None = Setting(None, path, NOTHING).about(
        "File that caches replies, so that repeated requests cost nothing"
    )
    openai_base_url: str | None = Setting(None, url, RUN).about(
        "Server for OpenAI models and for models that are not in the model list"
    )
    openai_api_key: Secret | None = Setting(None, key, NOTHING, secret="OPENAI_API_KEY").about(
        "Keys do not belong in files: set the variable OPENAI_API_KEY"
    )
    models: tuple[str, ...] = derived((), NOTHING)
    """All models that are called, the judge included."""

    def complete(self) -> None:
        """Check the name, and collect the models of all tasks and of the judge."""
        if not re.fullmatch(r"[\w][\w.-]*", self.name, re.ASCII):
            raise UsageError(
                f"name: {self.name!r} is not allowed, because it names a folder; use letters, "
                "digits, '-', '_' and '.', starting with a letter or digit"
            )
        names = [entry.model for entry in self.tasks if entry.model] + [self.judge or ""]
        object.__setattr__(self, "models", tuple(dict.fromkeys(filter(None, names))))

    def warnings(self) -> Iterator[str]:
        """Yield warnings about valid settings."""
        if any(entry.sandbox == "none" for entry in self.tasks):
            from assay.sandboxes.unprotected import UNPROTECTED

            yield UNPROTECTED

    def get_agent_hash(self, agent: str) -> str | None:
        """Return the hash of an agent's file; None if the agent is not in a file."""
        return dict(zip(find_agent_files(self.tasks), self.agent_hashes, strict=True)).get(
            agent
        )

    @property
    def allowed(self) -> Allowed:
        """Data outside their folders that tasks may read."""
        return Allowed(self.allow_repos, self.allow_variables)

    def make_run_settings(self) -> RunSettings:
        """Return the settings of the run; all trials are executed, and arms take turns."""
        return RunSettings(
            database=self.database,
            max_open=self.parallel,
            max_arms=max(1, len(self.tasks)),
            executor=self.executor,
            workers=self.workers,
            ray_address=self.ray_address,
        )

    def make_model_settings(self) -> "ModelSettings":
        """Return the settings of its model calls."""
        from assay.agents.chat_models import ModelSettings

        return ModelSettings.from_config(self, seed=0)


def find_agent_files(entries: Iterable[TaskEntry]) -> dict[str, ObjectSpec]:
    """Return the agents that are classes in files, in the order of the tasks."""
    agents = dict.fromkeys(entry.agent for entry in entries)
    specs = {agent: parse_object_spec(agent) for agent in agents}
    return {agent: spec for agent, spec in specs.items() if spec is not None}


@takes_options
def read_benchmark(file: Path, *, replacements: TaskReplacements) -> dict[str, Any]:
    """Read a benchmark file into the fields of `BenchConfig`.

    Args:
        file: The TOML file.
        replacements: Values that apply to every task.
    """
    if not file.is_file():
        raise UsageError(f"benchmark file {str(file)!r} not found; see docs/bench.md")
    try:
        content = tomllib.loads(file_text(file).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not valid TOML: {error}; see https://toml.io") from error
    for name in content:
        if name not in _TOP_KEYS:
            hint = f"; {name!r} belongs below [[tasks]] or [defaults]" if name in _KEYS else ""
            raise UsageError(f"{file}: {unknown_name('key', name, _TOP_KEYS)}{hint}")
    defaults = content.get("defaults", {})
    if not isinstance(defaults, dict):
        raise UsageError(f"{file}: defaults is not a table; write [defaults]")
    tables = content.get("tasks")
    if not isinstance(tables, list) or not tables:
        raise UsageError(f"{file} has no tasks; add [[tasks]] with a prepared_dir")
    if "sandbox" not in defaults and (sandbox := os.environ.get(_SANDBOX_VARIABLE)):
        defaults = {**defaults, "sandbox": sandbox}
    for name, value in defaults.items():
        _parse_value(name, value, f"{file}: [defaults]")
    replaced = {"agent": replacements.agent, "sandbox": replacements.sandbox}
    common = {name: value for name, value in replaced.items() if value is not None}
    parsed = [
        asdict(_parse_entry(_merge_table(defaults, table, common), f"{file}: task {number}"))
        for number, table in enumerate(tables, 1)
    ]
    entries = _replace_models(parsed, replacements.model_map or {})
    folder = file.parent
    for number, entry in enumerate(entries, 1):
        where = f"{file}: task {number}"
        entry["prepared_dir"] = _find_path(entry["prepared_dir"], folder, where, "prepared_dir")
        if (spec := parse_object_spec(entry["agent"])) is not None:
            file_path = _find_path(str(spec.path), folder, where, "agent")
            entry["agent"] = f"{file_path}:{spec.name}"
        if entry["overrides"] is not None:
            entry["overrides"] = _find_path(entry["overrides"], folder, where, "overrides")
    settings: dict[str, Any] = {"name": file.stem, "config_file": str(file), "tasks": entries}
    return settings | {name: content[name] for name in _TOP_KEYS[:-2] if name in content}


def _merge_table(defaults: Mapping[str, Any], table: Any, replaced: Mapping[str, str]) -> Any:
    if not isinstance(table, Mapping):
        return table
    merged = {**defaults, **table, **replaced}
    if merged.get("sandbox") != "none":  # an agent that is a program cannot use it
        merged.setdefault("agent", choose_default_agent())
    if "timeout" in table or TIMEOUT_VARIABLE not in table.get("environment_variables", {}):
        return merged
    # The variable of a single task overrides the timeout in [defaults].
    merged.pop("timeout", None)
    return merged


def _replace_models(
    entries: list[dict[str, Any]], model_map: Mapping[str, str]
) -> list[dict[str, Any]]:
    models = {entry["model"] for entry in entries}
    for old in model_map:
        if old not in models:
            raise UsageError(
                unknown_name("model in --model-map", old, sorted(filter(None, models)))
            )
    return [
        {**entry, "model": model_map.get(entry["model"] or "", entry["model"])}
        for entry in entries
    ]


def _find_path(value: str, folder: Path, where: str, name: str) -> str:
    """Find a path relative to the working directory, or else to the benchmark file."""
    relative = Path(value).expanduser()
    for candidate in dict.fromkeys((relative, folder / relative)):
        if candidate.exists():
            return str(candidate)
    raise UsageError(
        f"{where}: {name}: {value!r} not found, neither in the current folder nor in "
        f"{str(folder) or '.'!r}"
    )


OWN_OVERRIDES = "overrides.json"
"""File in a task folder that is applied unless the benchmark file overrides or disables it."""


_MAX_SETTING_LENGTH = 40
"""Maximum length of a setting in a label."""


class _ArmIdentity(NamedTuple):
    """Identity of an arm."""

    base: str
    """Its name, unless several arms have the same."""
    settings: str
    """Everything in which it may differ from other arms, as canonical JSON."""


def find_overrides(entry: TaskEntry) -> Path | None:
    """Return the overrides file that is applied to a task, or None."""
    default = Path(entry.prepared_dir) / OWN_OVERRIDES
    if entry.apply_overrides is False:
        return None
    if entry.overrides is not None:
        return Path(entry.overrides)
    return default if default.is_file() else None


def make_arm_labels(config: BenchConfig) -> tuple[str, ...]:
    """Return the arm label of each task of the file, in order."""
    identities = [_make_identity(entry) for entry in config.tasks]
    distinct = list(dict.fromkeys(identities))
    bases = Counter(identity.base for identity in distinct)
    differing = _describe_differences(config, identities)
    names: dict[_ArmIdentity, str] = {}
    for identity in distinct:
        name = (
            identity.base
            if bases[identity.base] == 1
            else f"{identity.base} {differing[identity]}".strip()
        )
        names[identity] = _make_unique(name, [*names.values()])
    return tuple(names[identity] for identity in identities)


def _make_unique(name: str, taken: list[str]) -> str:
    """Return the name, numbered if another arm has it: arms are never merged."""
    numbers = count(2)
    unique = name
    while unique in taken:
        unique = f"{name} ({next(numbers)})"
    return unique


def make_arms(config: BenchConfig) -> tuple[Arm, ...]:
    """Return the arms of a benchmark, in the order of the file."""
    arms: dict[str, Arm] = {}
    for name, entry in zip(make_arm_labels(config), config.tasks, strict=True):
        settings = _collect_arm_settings(entry)
        arms.setdefault(
            name,
            Arm(
                label=name,
                series=f"{config.name} {name}",
                model=entry.model,
                agent=entry.agent,
                settings=settings,
                version={
                    "agent": entry.agent,
                    **_get_agent_version(config, entry.agent),
                    "model": entry.model,
                    "settings": settings,
                    "judge": config.judge,
                },
                tags={
                    "benchmark": config.name,
                    "agent": entry.agent,
                    **({"model": entry.model} if entry.model else {}),
                    **({"settings": settings} if settings else {}),
                },
            ),
        )
    return tuple(arms.values())


def _get_agent_version(config: BenchConfig, agent: str) -> dict[str, str]:
    if (sha := config.get_agent_hash(agent)) is not None:
        return {"agent_hash": sha}
    installed = find_installed_agent(agent)
    return {} if installed is None else {"agent_version": installed.version}


def _make_identity(entry: TaskEntry) -> _ArmIdentity:
    spec = parse_object_spec(entry.agent)
    agent = entry.agent if spec is None else f"{spec.path.name}:{spec.name}"
    base = entry.label or (f"{agent}+{entry.model}" if entry.model else agent)
    settings = {"agent": entry.agent, "model": entry.model, **_collect_arm_settings(entry)}
    return _ArmIdentity(base, canonical_json(settings).decode())


def _collect_arm_settings(entry: TaskEntry) -> dict[str, Any]:
    """Return the settings of an arm, without overrides from the task folder."""
    settings = entry.collect_changed_settings()
    applied = find_overrides(entry)
    if entry.apply_overrides is False:
        settings["overrides"] = "none"
    elif applied is not None and applied != Path(entry.prepared_dir) / OWN_OVERRIDES:
        settings["overrides"] = str(applied)
    if entry.environment_variables:
        settings["environment"] = dict(entry.environment_variables)
        if "TIMEOUT_SEC" in entry.environment_variables:
            settings.pop("timeout", None)  # the variable has the timeout
    return settings


def _describe_differences(
    config: BenchConfig, identities: list[_ArmIdentity]
) -> Mapping[_ArmIdentity, str]:
    """Describe, for each arm, the settings that differ between arms of the same base name."""
    flat = {
        identity: _flatten_settings(entry)
        for identity, entry in zip(identities, config.tasks, strict=True)
    }
    descriptions = {}
    for identity, settings in flat.items():
        peers = [flat[key] for key in flat if key.base == identity.base]
        names = sorted({name for peer in peers for name in peer})
        differing = [name for name in names if len({str(peer.get(name)) for peer in peers}) > 1]
        descriptions[identity] = " ".join(
            f"{name}={_shorten(settings[name])}" for name in differing if name in settings
        )
    return descriptions


def _flatten_settings(entry: TaskEntry) -> dict[str, Any]:
    settings = _collect_arm_settings(entry)
    flat = {name: value for name, value in settings.items() if name != "environment"}
    identity = {"agent": entry.agent, **({"model": entry.model} if entry.model else {})}
    return identity | flat | dict(settings.get("environment", {}))


def _shorten(value: Any) -> str:
    """Shorten a value to one line for a label."""
    text = " ".join(str(value).split())
    return text if len(text) <= _MAX_SETTING_LENGTH else f"{text[: _MAX_SETTING_LENGTH - 1]}…"
