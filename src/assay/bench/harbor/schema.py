"""Schema of Harbor's `task.toml`, versions 1.0 to 1.4, for pydantic.

Unknown keys are errors, because a key that is not read would be silently ignored. The only
defaults are Harbor's. Except for `read_task_file`, this module opens no file.
"""

import re
import tomllib
from pathlib import Path, PurePosixPath
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic import model_validator as _model_validator

from assay.core.files import read_plain_file
from assay.core.text import shown, unknown_name
from assay.errors import UsageError

SCHEMAS: Final = ("1.0", "1.1", "1.2", "1.3", "1.4")
_UNITS: Final = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}


def _check_variable_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise ValueError("use letters, digits and _ for the name of a variable")
    return name


def _check_no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it must not contain NUL")
    return text


def _check_inside(path: str) -> str:
    if ".." in PurePosixPath(path).parts or "\0" in path:
        raise ValueError("give a path without '..'")
    return path


def _check_absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("give an absolute path")
    return _check_inside(path)


def _check_step_name(name: str) -> str:
    if not re.fullmatch(r"[\w][\w.-]*", name, re.ASCII):
        raise ValueError("give a folder below steps/: letters, digits, '-', '_' and '.'")
    return name


_Variables = dict[
    Annotated[str, AfterValidator(_check_variable_name)],
    Annotated[str, AfterValidator(_check_no_nul)],
]
_Seconds = Annotated[float, Field(gt=0, le=604_800)]
_User = Annotated[str, Field(min_length=1, pattern=r"^[\w.-]+(:[\w.-]+)?$")] | int
_Network = Literal["no-network", "public", "allowlist"]


class _TaskFilePart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class HealthcheckPart(_TaskFilePart):
    """A command that must succeed before the agent starts."""

    command: str
    interval_sec: float = 5.0
    timeout_sec: _Seconds = 30.0
    start_period_sec: float = 0.0
    start_interval_sec: float = 5.0
    retries: Annotated[int, Field(ge=1)] = 3


class ArtifactPart(_TaskFilePart):
    """A path that a separate verifier receives, at the same place."""

    source: Annotated[str, AfterValidator(_check_absolute)]
    destination: Annotated[str, AfterValidator(_check_inside)] | None = None
    exclude: list[str] = []
    service: str | None = None


class CollectPart(_TaskFilePart):
    """A command that runs after the agent, before artifacts are collected."""

    command: str
    service: str = "main"
    timeout_sec: _Seconds = 60.0
    user: _User | None = None


class _Phase(_TaskFilePart):
    """Keys shared by the agent and the verifier."""

    user: _User | None = None
    network_mode: _Network | None = None
    allowed_hosts: list[str] | None = None


class AgentPart(_Phase):
    """Settings of the agent."""

    timeout_sec: _Seconds | None = None


class EnvironmentPart(_TaskFilePart):
    """Image and resources of a sandbox."""

    network_mode: _Network = "public"
    allowed_hosts: list[str] | None = None
    build_timeout_sec: _Seconds = 600.0
    docker_image: str | None = None
    os: Literal["linux", "windows"] = "linux"
    cpus: Annotated[int, Field(ge=1)] | None = None
    memory_mb: Annotated[int, Field(ge=1)] | None = None
    storage_mb: Annotated[int, Field(ge=1)] | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None
    gpu_types: list[str] | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: list[dict[str, Any]] = []
    env: _Variables = {}
    skills_dir: str | None = None
    healthcheck: HealthcheckPart | None = None
    workdir: Annotated[str, AfterValidator(_check_absolute)] | None = None

    @_model_validator(mode="before")
    @classmethod
    def _convert_old_keys(cls, values: Any) -> Any:
        """Convert the keys of older schemas to current ones."""
        if not isinstance(values, dict):
            return values
        converted = dict(values)
        if isinstance(converted.get("os"), str):
            converted["os"] = converted["os"].lower()
        for old, key in (("memory", "memory_mb"), ("storage", "storage_mb")):
            if old in converted:
                size = _parse_megabytes(converted.pop(old))
                if converted.setdefault(key, size) != size:
                    raise ValueError(f"{old} and {key} must be equal")
        internet = converted.pop("allow_internet", None)
        if internet is not None and not isinstance(internet, bool):
            raise ValueError("allow_internet must be true or false")
        if (
            internet is not None
            and "network_mode" not in converted
            and "allowed_hosts" not in converted
        ):
            converted["network_mode"] = "public" if internet else "no-network"
        return converted


class VerifierPart(_Phase):
    """Settings of the tests."""

    timeout_sec: _Seconds | None = None
    env: _Variables = {}
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentPart | None = None
    collect: list[CollectPart] = []

    @_model_validator(mode="after")
    def _check_mode(self) -> "VerifierPart":
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError("use environment_mode 'separate' or drop [verifier.environment]")
        return self

    @property
    def mode(self) -> str | None:
        """Shared or separate; None if it is not given."""
        implied = None if self.environment is None else "separate"
        return self.environment_mode or implied


class StepPart(_TaskFilePart):
    """A `[[steps]]` table."""

    name: Annotated[str, AfterValidator(_check_step_name)]
    agent: AgentPart = AgentPart()
    verifier: VerifierPart = VerifierPart()
    min_reward: float | dict[str, float] | None = None
    healthcheck: HealthcheckPart | None = None
    artifacts: list[str | ArtifactPart] = []


class _Author(_TaskFilePart):
    name: str
    email: str | None = None


class PackagePart(_TaskFilePart):
    """Name and description of a published task."""

    name: str
    version: Annotated[str, Field(min_length=1)] | None = None
    description: str = ""
    authors: list[_Author] = []
    keywords: list[str] = []


class _SolutionPart(_TaskFilePart):
    env: _Variables = {}


class TaskFile(_TaskFilePart):
    """The whole `task.toml`."""

    schema_version: Literal["1.0", "1.1", "1.2", "1.3", "1.4"] = "1.4"
    task: PackagePart | None = None
    metadata: dict[str, Any] = {}
    verifier: VerifierPart = VerifierPart()
    agent: AgentPart = AgentPart()
    environment: EnvironmentPart = EnvironmentPart()
    solution: _SolutionPart = _SolutionPart()
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: list[StepPart] | None = None
    artifacts: list[str | ArtifactPart] = []

    @_model_validator(mode="before")
    @classmethod
    def _convert_old_keys(cls, values: Any) -> Any:
        if isinstance(values, dict) and "version" in values:
            return {"schema_version": values["version"]} | {
                key: value for key, value in values.items() if key != "version"
            }
        return values


def read_task_file(path: Path) -> TaskFile:
    """Read a `task.toml`.

    Raises:
        UsageError: It is invalid; the message has the key, the value and what is allowed.
    """
    try:
        content = tomllib.loads(read_plain_file(path, 16 << 20).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    try:
        return TaskFile.model_validate(content)
    except ValidationError as error:
        # Of the alternatives of a union, the deepest error is the most helpful.
        first = max(error.errors(), key=lambda error: len(error["loc"]))
    loc = [part for part in first["loc"] if not _is_alternative(part)]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    if first["type"] == "extra_forbidden":
        problem = unknown_name("key", str(loc[-1]), _list_keys(loc[:-1]))
        where = key.lstrip(".").rpartition(".")[0]
        raise UsageError(f"{path}: {f'[{where}]: ' if where else ''}{problem}")
    allowed = first["msg"].removeprefix("Value error, ")
    raise UsageError(
        f"{path}: {key.lstrip('.')}: {shown(first['input'])} is not allowed: {allowed}"
    )


def _is_alternative(part: int | str) -> bool:
    """Return whether a part of a location is the type name of a union member."""
    return isinstance(part, str) and (
        part in ("str", "int", "float")
        or "[" in part
        or (part.endswith("Part") and part[0].isupper())
    )


def _list_keys(loc: list[int | str]) -> list[str]:
    """Return the keys of the table at a location."""
    kind: Any = TaskFile
    for part in loc:
        if isinstance(part, int):
            continue
        kind = _find_model(kind.model_fields[part].annotation)
    return sorted(kind.model_fields)


def _find_model(kind: Any) -> Any:
    """Return the model of a field that is a table or a list of tables."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if get_origin(kind) in (Union, UnionType, list):
        models = [_find_model(inner) for inner in get_args(kind) if inner is not NoneType]
        return next((inner for inner in models if inner is not None), None)
    return None


def _parse_megabytes(size: Any) -> int:
    text = str(size).strip().upper()
    if not re.fullmatch(r"\d+(\.\d+)?[GMK]", text):
        raise ValueError("give a size such as '2G' or '512M'")
    return int(float(text[:-1]) * _UNITS[text[-1]])


def parse_artifacts(entries: list[str | ArtifactPart]) -> tuple[ArtifactPart, ...]:
    """Convert artifacts to tables; an entry may be a bare path."""
    return tuple(
        ArtifactPart(source=_check_absolute(entry)) if isinstance(entry, str) else entry
        for entry in entries
    )


def format_user(user: str | int | None) -> str | None:
    """Convert a user name or number to the text that a sandbox accepts."""
    return None if user is None else str(user)
