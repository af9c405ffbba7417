"""Reading of a task folder in Harbor's layout. Nothing in the folder is ever changed.

    task.toml  instruction.md  environment/  tests/  solution/      one step
    task.toml  environment/  tests/  steps/<name>/…                 several steps

`find_task_problems` reports everything that is not supported here, before anything is started.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from assay.bench.base import NOTHING_ALLOWED, Allowed, CodingTask, RepoSource, get_cache_folder
from assay.bench.harbor.schema import (
    ArtifactPart,
    CollectPart,
    EnvironmentPart,
    HealthcheckPart,
    StepPart,
    TaskFile,
    format_user,
    parse_artifacts,
    read_task_file,
)
from assay.bench.tasks.tree import format_path, is_too_long, walk
from assay.core.canonical_json import canonical_json, content_hash
from assay.core.files import read_plain_file
from assay.core.secrets import has_secret
from assay.errors import UsageError
from assay.sandboxes.base import ImageRecipe

CONFIG: Final = "task.toml"
INSTRUCTION: Final = "instruction.md"
TEST: Final = "test.sh"
SOLVE: Final = "solve.sh"
_NAMES_READ: Final = frozenset(
    {CONFIG, INSTRUCTION, TEST, SOLVE, "setup.sh", "Dockerfile", ".dockerignore", "steps"}
    | {"environment", "tests", "solution", "workdir"}
)
"""Names of files and folders that assay reads, copies or changes the mode of."""
_MAX_TASK_BYTES: Final = 8 << 30
_DEFAULT_VERIFIER_S: Final = 600.0
_FORMAT: Final = "harbor-task/1"
_TEMPLATE: Final = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_SECRET: Final = re.compile(
    r"(^|_)(KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE
)
_CANARY: Final = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVerification:
    """Verification of one step."""

    separate: bool
    """Whether tests run in their own image with the artifacts, not on the agent's files."""
    environment: EnvironmentPart
    recipe: Path
    """Folder of its Dockerfile, if it is separate."""
    tests: tuple[Path, ...] = ()
    """Folders merged into /tests, later ones override; none if the image has the tests."""
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = _DEFAULT_VERIFIER_S
    user: str | None = None
    collect: tuple[CollectPart, ...] = ()
    artifacts: tuple[ArtifactPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborStep:
    """One step; most tasks have a single step without a name."""

    name: str
    instructions: str
    verification: StepVerification
    solution: Path | None = None
    """Folder with solve.sh."""
    workdir_files: Path | None = None
    """Files copied to the working directory before the agent starts."""
    timeout_s: float | None = None
    user: str | None = None
    network: bool = False
    healthchecks: tuple[HealthcheckPart, ...] = ()
    min_rewards: Mapping[str, float] = field(default_factory=dict)
    """Rewards required to begin the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborTask(CodingTask):
    """A Harbor task, which has an image instead of a repository."""

    config: TaskFile
    steps: tuple[HarborStep, ...]
    solution_variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_reference(self) -> bool:
        """Whether every step has a solution."""
        return all(step.solution is not None for step in self.steps)

    @property
    def asks_network(self) -> bool:
        """Whether a step requests network access."""
        return any(step.network for step in self.steps)

    @property
    def shares_verifier(self) -> bool:
        """Whether a step is verified on the files that the agent left."""
        return any(not step.verification.separate for step in self.steps)


def is_harbor_task(folder: Path) -> bool:
    """Return whether a folder has a task in Harbor's layout."""
    return (folder / CONFIG).is_file()


def find_task_problems(folder: Path, allowed: Allowed = NOTHING_ALLOWED) -> tuple[str, ...]:
    """Return everything in a task that is not supported here.

    Args:
        folder: The task folder.
        allowed: Data outside its folder that the user lets the task read.

    Raises:
        UsageError: Its task.toml cannot be read.
    """
    config = read_task_file(folder / CONFIG)
    return tuple(dict.fromkeys(_find_problems(folder, config, allowed)))


def load_harbor_task(folder: Path, allowed: Allowed = NOTHING_ALLOWED) -> HarborTask:
    """Read a task.

    Args:
        folder: The task folder.
        allowed: Data outside its folder that the user lets the task read.

    Raises:
        UsageError: Its task.toml cannot be read, or something in it is not supported.
    """
    config = read_task_file(folder / CONFIG)
    problems = tuple(dict.fromkeys(_find_problems(folder, config, allowed)))
    if problems:
        raise UsageError(f"{folder} is not supported here: {'; '.join(problems)}")
    name = config.task.name if config.task is not None else folder.resolve().name
    environment = config.environment
    limits = {
        "cpus": environment.cpus,
        "memory_mb": environment.memory_mb,
        "disk_mb": environment.storage_mb,
    }
    steps = tuple(_make_steps(folder.resolve(), config))
    return HarborTask(
        folder=folder.resolve(),
        task_id=name.rpartition("/")[2],
        title=name,
        instructions="\n\n".join(step.instructions for step in steps),
        repo=RepoSource(),
        tags=tuple(config.task.keywords) if config.task is not None else (),
        environment=_resolve_variables(environment.env),
        limits={name: float(value) for name, value in limits.items() if value is not None},
        checksum=_compute_checksum(folder),
        config=config,
        steps=steps,
        solution_variables=_resolve_variables(config.solution.env),
    )


def make_recipe(
    environment: EnvironmentPart,
    folder: Path,
    base_images: Mapping[str, str],
    *,
    network: bool,
) -> ImageRecipe:
    """Return the recipe of an image: the named image, or a Dockerfile."""
    if environment.docker_image is not None:
        text = f"FROM {environment.docker_image}\n"
        folder = get_cache_folder() / "recipes" / content_hash(text.encode())[:16]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "Dockerfile").write_text(text, "utf-8")
    return ImageRecipe(context=folder, base_images=base_images, network=network)


def _find_problems(folder: Path, config: TaskFile, allowed: Allowed) -> Iterator[str]:
    yield from _find_file_problems(folder)
    yield from _find_env_problems(folder / "environment", config.environment, "environment")
    if config.agent.network_mode == "allowlist" or config.verifier.network_mode == "allowlist":
        yield _ALLOWLIST
    for part in (config.agent, config.verifier):
        yield from _find_host_problems(part.allowed_hosts, part.network_mode)
    entries = [*config.artifacts]
    verifiers = [config.verifier]
    if not config.steps:
        yield from _find_step_problems(folder, config, StepPart(name="only"), folder)
    for step in config.steps or []:
        entries += step.artifacts
        verifiers.append(step.verifier)
        yield from _find_step_problems(folder, config, step, folder / "steps" / step.name)
        if "allowlist" in (step.agent.network_mode, step.verifier.network_mode):
            yield _ALLOWLIST
    names = [step.name for step in config.steps or []]
    if len({*names}) < len(names):
        yield "two steps have the same name"
    for verifier in verifiers:
        for hook in verifier.collect:
            if hook.service != "main":
                yield f"verifier.collect of service {hook.service!r}: only main is supported"
    for entry in entries:
        if isinstance(entry, str) and (not entry.startswith("/") or ".." in entry.split("/")):
            yield f"artifact {entry!r} is not an absolute path without '..'"
        elif isinstance(entry, ArtifactPart) and entry.service not in (None, "main"):
            yield f"artifact of service {entry.service!r}: only main is supported"
    for where, variables in (
        ("environment.env", config.environment.env),
        ("solution.env", config.solution.env),
        *(("verifier.env", verifier.env) for verifier in verifiers),
        *(
            ("verifier.environment.env", verifier.environment.env)
            for verifier in verifiers
            if verifier.environment is not None
        ),
    ):
        yield from _find_variable_problems(where, variables, allowed)


_ALLOWLIST: Final = "network_mode 'allowlist' (no sandbox supports it)"


def _find_env_problems(folder: Path, environment: EnvironmentPart, where: str) -> Iterator[str]:
    if environment.os == "windows":
        yield f"{where}.os 'windows'"
        return
    if environment.gpus:
        yield f"{where}.gpus {environment.gpus}"
    if environment.tpu is not None:
        yield f"{where}.tpu"
    if environment.mcp_servers:
        yield f"{where}.mcp_servers"
    if environment.skills_dir is not None:
        yield f"{where}.skills_dir"
    if environment.network_mode == "allowlist":
        yield _ALLOWLIST
    yield from _find_host_problems(environment.allowed_hosts, environment.network_mode)
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (folder / name).exists():
            yield f"{folder.name}/{name} (several containers)"
    if environment.docker_image is None and not (folder / "Dockerfile").is_file():
        yield f"no {folder.name}/Dockerfile and no {where}.docker_image"


def _find_host_problems(hosts: list[str] | None, mode: str | None) -> Iterator[str]:
    if hosts and mode != "allowlist":
        yield "allowed_hosts without network_mode 'allowlist'"


def _find_step_problems(
    folder: Path, config: TaskFile, step: StepPart, step_folder: Path
) -> Iterator[str]:
    if not (step_folder / INSTRUCTION).is_file():
        yield f"no {(step_folder / INSTRUCTION).relative_to(folder)}"
    trajectory = step_folder / "trajectory.json"
    if trajectory.exists():
        yield f"{trajectory.relative_to(folder)} (a conversation to resume)"
    separate = _has_separate_verifier(config, step)
    tests = _find_verifier_folder(folder, step_folder)
    if separate:
        part = step.verifier.environment or config.verifier.environment or config.environment
        where = "environment" if part is config.environment else "verifier.environment"
        yield from _find_env_problems(tests, part, where)
    elif not any((path / TEST).is_file() for path in (step_folder / "tests", folder / "tests")):
        yield f"no tests/{TEST}"


def _find_file_problems(folder: Path) -> Iterator[str]:
    """Report links out of the task, links in place of files read here, and excessive size."""
    top, size = os.path.realpath(folder), 0
    for path, status in walk(folder):
        above, _, name = path.rpartition("/")
        if status is None or is_too_long(path):
            yield f"{format_path(path)} cannot be read, or its path is too long"
        elif stat.S_ISREG(status.st_mode):
            size += status.st_size
        elif stat.S_ISLNK(status.st_mode):
            target = os.path.realpath(folder / path)
            if not f"{target}/".startswith(f"{top}/") or os.readlink(folder / path)[:1] == "/":
                yield f"{format_path(path)} is a link to a path outside the task"
            elif name in _NAMES_READ or above == "steps":
                yield f"{format_path(path)} is a link; replace it with the file or folder"
        elif not stat.S_ISDIR(status.st_mode):
            yield f"{format_path(path)} is a pipe, socket or device"
    if size > _MAX_TASK_BYTES:
        yield f"its files have {size:,} bytes, more than {_MAX_TASK_BYTES:,}"


def _find_variable_problems(
    where: str, variables: Mapping[str, str], allowed: Allowed
) -> Iterator[str]:
    for name, value in variables.items():
        template = _TEMPLATE.fullmatch(value)
        source = template[1] if template is not None and template[1] in os.environ else None
        source_name = name if template is None else template[1]
        if source in allowed.variables:
            continue
        if _SECRET.search(name) or _SECRET.search(source_name) or has_secret(value):
            yield f"{where}.{name} looks like a secret, which must not be in a sandbox"
        elif source is not None:
            secret = " and looks like a secret" if has_secret(os.environ[source]) else ""
            yield (
                f"{where}.{name} reads the variable {source} of this machine, which is not "
                f"allowed{secret}; to allow it: --allow-variable {source}"
            )
        elif template and template[2] is None:
            yield f"{where}.{name} needs the variable {template[1]}, which is not set"


def _has_separate_verifier(config: TaskFile, step: StepPart) -> bool:
    return (step.verifier.mode or config.verifier.mode) == "separate"


def _find_verifier_folder(folder: Path, step_folder: Path) -> Path:
    return step_folder / "tests" if (step_folder / "tests").is_dir() else folder / "tests"


def _make_steps(folder: Path, config: TaskFile) -> Iterator[HarborStep]:
    environment = config.environment
    for step in config.steps or [StepPart(name="only")]:
        step_folder = folder / "steps" / step.name if config.steps else folder
        mode = step.agent.network_mode or config.agent.network_mode
        workdir = step_folder / "workdir"
        min_reward = step.min_reward
        checks = [] if environment.healthcheck is None else [environment.healthcheck]
        yield HarborStep(
            name=step.name if config.steps else "",
            instructions=_read_instructions(folder, step_folder / INSTRUCTION),
            verification=_make_verification(folder, config, step, step_folder),
            solution=_find_solution(folder, step_folder),
            workdir_files=workdir if config.steps and workdir.is_dir() else None,
            timeout_s=step.agent.timeout_sec or config.agent.timeout_sec,
            user=format_user(_choose_first(step.agent.user, config.agent.user)),
            network=(mode or environment.network_mode) == "public",
            healthchecks=(*checks, *([step.healthcheck] if step.healthcheck else [])),
            min_rewards={"reward": min_reward}
            if isinstance(min_reward, float)
            else min_reward or {},
        )


def _make_verification(
    folder: Path, config: TaskFile, step: StepPart, step_folder: Path
) -> StepVerification:
    separate = _has_separate_verifier(config, step)
    task_part, step_part = config.verifier, step.verifier
    environment = config.environment
    if separate:
        environment = step_part.environment or task_part.environment or config.environment
    tests = dict.fromkeys((folder / "tests", step_folder / "tests"))
    return StepVerification(
        separate=separate,
        environment=environment,
        recipe=_find_verifier_folder(folder, step_folder),
        tests=() if separate else tuple(path for path in tests if path.is_dir()),
        variables=_resolve_variables({**environment.env, **task_part.env, **step_part.env}),
        timeout_s=step_part.timeout_sec or task_part.timeout_sec or _DEFAULT_VERIFIER_S,
        user=format_user(_choose_first(step_part.user, task_part.user)),
        collect=(*task_part.collect, *step_part.collect),
        artifacts=parse_artifacts([*config.artifacts, *step.artifacts]),
    )


def _choose_first(first: str | int | None, second: str | int | None) -> str | int | None:
    return second if first is None else first


def _find_solution(folder: Path, step_folder: Path) -> Path | None:
    for path in dict.fromkeys((step_folder / "solution", folder / "solution")):
        if (path / SOLVE).is_file():
            return path
    return None


def _read_instructions(folder: Path, path: Path) -> str:
    """Read the instructions, without canary lines against training at the top."""
    try:
        lines = read_plain_file(path, within=folder).decode().split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error}") from error
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    while lines and _CANARY.fullmatch(lines[0].strip()):
        lines.pop(0)
        while lines and not lines[0].strip():
            lines.pop(0)
    return "\n".join(lines)


def _resolve_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Replace `${NAME}` and `${NAME:-default}` by variables of this machine."""

    def resolve(value: str) -> str:
        template = _TEMPLATE.fullmatch(value)
        if template is None:
            return value
        return os.environ.get(template[1]) or template[2] or ""

    return {name: resolve(value) for name, value in variables.items()}


def _compute_checksum(folder: Path) -> str:
    files = []
    for name, status in sorted(walk(folder), key=lambda item: item[0].split("/")):
        mode = 0 if status is None else status.st_mode
        if stat.S_ISLNK(mode):
            files.append([name, os.readlink(folder / name), False])
        elif stat.S_ISREG(mode) and "__pycache__" not in (folder / name).parts:
            with (folder / name).open("rb") as file:
                digest = hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16))
            files.append([name, digest.hexdigest(), bool(mode & 0o100)])
    return content_hash(canonical_json([_FORMAT, files]))
