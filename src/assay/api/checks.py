"""Checks of everything a run depends on; each function checks one thing.

A check repairs nothing, does not raise for a broken system, and takes a few seconds at most.
Only the database is read completely, which takes about a second per gigabyte.

Checks of providers cover user rows, keys and addresses. Keys are reported by the names of their
variables, and are never sent.
"""

import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from assay.core.provenance import collect_provenance
from assay.core.text import format_install_command
from assay.errors import AccessDenied, AssayError, ModelRejected, StoreBusy, UsageError
from assay.store.location import default_database

if TYPE_CHECKING:
    from assay.models.registry import Provider, Registry
    from assay.store.run_folder import RunFolder

DEFAULT_SERVICE: Final = "http://localhost:8901"
_GIB: Final = 2**30
_LOW_SPACE, _MIN_SPACE = 2 * _GIB, _GIB // 8
_TIMEOUT: Final = 3.0
_PACKAGE: Final = re.compile(r"[\s<>=!~;\[(]")


class CheckState(StrEnum):
    """Result of a check."""

    OK = "ok"
    """Nothing to do."""
    WARN = "warn"
    """It works or will soon, but the user should know."""
    FAIL = "fail"
    """A run would fail because of it."""


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check, and the recommended next step."""

    name: str
    state: CheckState
    detail: str
    next_step: str | None = None


def doctor(
    *,
    service_url: str | None = None,
    database: Path | str | None = None,
    sandbox: str | None = None,
) -> Iterator[Check]:
    """Check everything a run depends on, one thing after another; repairs nothing.

    Args:
        service_url: Service that must respond; by default, one on port 8901 may.
        database: Database that runs write to.
        sandbox: Sandbox in which to try attacks, see `check_protection`.
    """
    path = default_database() if database is None else Path(database)
    yield check_python()
    yield check_assay()
    yield check_extras()
    yield check_engine()
    yield check_service(service_url, os.environ.get("ASSAY_SERVICE_TOKEN"))
    yield check_models()
    yield from check_providers()
    yield check_backends()
    yield check_sandbox()
    if sandbox is not None:
        yield check_protection(sandbox)
    yield check_docker()
    yield check_modal()
    yield check_agents()
    yield check_database(path)
    yield from check_journals(path)
    yield check_disk(path)


def check_python() -> Check:
    """Report the Python version and executable."""
    return Check("python", CheckState.OK, f"{platform.python_version()} at {sys.executable}")


def check_assay() -> Check:
    """Report the version of assay, and its commit if it runs from a checkout."""
    origin = collect_provenance()
    detail = origin.assay
    if origin.commit is not None:
        detail += f", commit {origin.commit[:12]}{', changed since' if origin.dirty else ''}"
    if origin.project is not None:
        detail += f", in a project at commit {origin.project}"
    return Check("assay", CheckState.OK, detail)


def check_extras() -> Check:
    """Report which optional dependencies are installed."""
    try:
        extras = metadata("assay").get_all("Provides-Extra") or []
        needs = requires("assay") or []
    except PackageNotFoundError:
        return Check(
            "extras",
            CheckState.WARN,
            "assay is not installed",
            "in a clone of assay: pip install .",
        )
    lines = [_describe_extra(name, needs) for name in sorted(extras)]
    detail = "; ".join(lines) or "none"
    missing = any("lacks" in line for line in lines)
    step = f"to install one: {format_install_command('NAME')}"
    return Check("extras", CheckState.OK, detail, step if missing else None)


def _describe_extra(name: str, needs: list[str]) -> str:
    mark = re.compile(rf"extra\s*==\s*['\"]{re.escape(name)}['\"]")
    packages = [_PACKAGE.split(need, maxsplit=1)[0] for need in needs if mark.search(need)]
    missing = [package for package in packages if not _is_installed(package)]
    return f"{name}: lacks {', '.join(missing)}" if missing else f"{name}: installed"


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def check_engine() -> Check:
    """Check whether the engine of the world is already compiled; compiles nothing."""
    from assay.crafter.engine.jit import compiled_home

    home, is_compiled = compiled_home()
    root = home.parent
    if is_compiled:
        return Check("engine", CheckState.OK, f"compiled, in {home}")
    if not os.access(_find_existing_parent(root), os.W_OK | os.X_OK):
        return Check(
            "engine",
            CheckState.WARN,
            f"not compiled, and {root} is not writable, so every start compiles it",
            "set ASSAY_CACHE_DIR to a writable folder",
        )
    step = "assay warmup compiles it now (about 20 s); so does the first run"
    return Check("engine", CheckState.WARN, f"not compiled yet; will be cached in {root}", step)


def check_service(url: str | None, token: str | None = None) -> Check:
    """Check whether a world service responds: the given one, which must, or the default one."""
    import asyncio

    from assay.crafter.service.http_client import HttpClient, RequestRetries

    address = url or DEFAULT_SERVICE

    async def request_health() -> None:
        only_once = RequestRetries(attempts=1)
        timeout = _TIMEOUT if url else 1.0
        async with HttpClient(
            address, token=token, timeout=timeout, retries=only_once
        ) as client:
            await client.health()

    try:
        asyncio.run(request_health())
    except AccessDenied as error:
        step = "set ASSAY_SERVICE_TOKEN to the token of the service"
        return Check(
            "service", CheckState.FAIL if url else CheckState.WARN, f"{address}: {error}", step
        )
    except (AssayError, ValueError, OSError) as error:
        if url is None:
            return Check("service", CheckState.OK, f"none at {address}; runs do not need one")
        start = f"assay serve starts one; check the address {address} and the network"
        return Check("service", CheckState.FAIL, str(error).splitlines()[0], start)
    return Check("service", CheckState.OK, f"responds at {address}")


def check_sandbox() -> Check:
    """Check which limits the sandbox of coding benchmarks can enforce here."""
    import warnings

    from assay.sandboxes.backends import choose_backend
    from assay.sandboxes.base import ResourceLimits

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning about no sandbox is reported below
            backend = choose_backend()
        enforcement = backend.enforcement(ResourceLimits())
    except AssayError as error:
        reason, _, step = str(error).partition("; ")
        return Check(
            "sandbox",
            CheckState.WARN,
            f"none, so benchmarks cannot run: {reason}",
            step or None,
        )
    if enforcement.backend == "none":
        detail = "none: benchmark agents run with your privileges and without limits"
        step = "unset SANDBOX_BACKEND to run them in bubblewrap"
        return Check("sandbox", CheckState.WARN, detail, step)
    limits = (
        f"memory: {enforcement.memory}; processes: {enforcement.processes}; "
        f"CPUs: {enforcement.cpus}; disk: {enforcement.disk}; network: {enforcement.network}"
    )
    return Check("sandbox", CheckState.OK, f"{enforcement.backend} ({limits})")


def check_protection(name: str) -> Check:
    """Check what a sandbox blocks here, by trying attacks in one."""
    from assay.sandboxes.backends import choose_backend
    from assay.sandboxes.self_test import run_self_test

    try:
        result = run_self_test(choose_backend(name))
    except AssayError as error:
        reason, _, step = str(error).partition("; ")
        return Check("self-test", CheckState.FAIL, f"{name}: {reason}", step or None)
    if not result.is_tested:
        detail = f"{name}: not tested; only bubblewrap and docker can be"
        return Check("self-test", CheckState.WARN, detail)
    if result.holes:
        step = "do not run untrusted agents or tasks in it; try another sandbox"
        return Check("self-test", CheckState.FAIL, f"{name}: {result}", step)
    state = CheckState.WARN if result.not_held else CheckState.OK
    return Check("self-test", state, f"{name}: {result}")


def check_docker() -> Check:
    """Check whether a Docker engine responds; only the sandbox `docker` needs one."""
    from assay.sandboxes.backends import choose_backend
    from assay.sandboxes.base import ResourceLimits

    try:
        enforcement = choose_backend("docker").enforcement(ResourceLimits())
    except AssayError as error:
        reason, _, step = str(error).partition("; ")
        return Check(
            "docker", CheckState.OK, f"{reason}; only --sandbox docker needs one: {step}"
        )
    return Check("docker", CheckState.OK, f"the engine responds ({enforcement.memory})")


def check_modal() -> Check:
    """Check whether Modal accepts the configured account; only `modal` needs one."""
    from assay.sandboxes.base import ResourceLimits
    from assay.sandboxes.modal.backend import ModalBackend

    try:
        ModalBackend().enforcement(ResourceLimits())
    except AssayError as error:
        reason, _, _ = str(error).partition("; ")
        return Check("modal", CheckState.OK, f"{reason}; only --sandbox modal needs it")
    return Check("modal", CheckState.OK, "the service accepts the account")


def check_agents() -> Check:
    """Report which third-party coding agents are installed."""
    from assay.bench.coders.installation import PROGRAMS, find_installed_agent

    versions = []
    for name in PROGRAMS:
        agent = find_installed_agent(name)
        versions.append(f"{name} {'is not installed' if agent is None else agent.version}")
    missing = any(find_installed_agent(name) is None for name in PROGRAMS)
    step = "to install one: assay bench agents install NAME"
    return Check("agents", CheckState.OK, "; ".join(versions), step if missing else None)


def check_database(path: Path, patience: float = _TIMEOUT) -> Check:
    """Check whether the database can be read and written, or which process holds it."""
    from assay.store.migrations import stored_version
    from assay.store.queries import count_sessions, read_everything
    from assay.store.store import Store

    step = "check the owner of the file and its folder, or give another --database"
    try:
        store = Store(path, patience=patience)
    except UsageError as error:
        return Check("database", CheckState.FAIL, str(error), step)
    if not path.exists():
        if not os.access(_find_existing_parent(path.parent), os.W_OK | os.X_OK):
            return Check("database", CheckState.FAIL, f"{path} cannot be created", step)
        return Check(
            "database", CheckState.OK, f"{path} does not exist yet; assay run creates it"
        )
    try:
        with store.reading() as connection:
            schema = stored_version(connection)
            episodes = count_sessions(connection)
            read_everything(connection)
    except StoreBusy as error:
        wait_step = "runs wait for it, and lose nothing"
        return Check("database", CheckState.WARN, str(error), wait_step)
    except AssayError as error:
        return Check("database", CheckState.FAIL, str(error), "see docs/troubleshooting.md")
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        return Check("database", CheckState.FAIL, f"{path} is read-only", step)
    detail = f"{path}: schema version {schema}, {episodes} episodes, writable"
    return Check("database", CheckState.OK, detail)


def check_journals(database: Path) -> list[Check]:
    """Report unfinished runs, and damaged journals."""
    from assay.store.run_folder import journal_root, unfinished_runs, unreadable_runs

    try:
        runs = unfinished_runs(database)
    except AssayError as error:
        return [Check("journals", CheckState.WARN, str(error))]
    checks = [_check_unfinished_run(run, database) for run in runs]
    for folder, reason in unreadable_runs(database).items():
        detail = f"{reason}; its run cannot be resumed"
        step = f"use the version of assay that wrote it, repair the file, or move {folder} away"
        checks.append(Check("journals", CheckState.WARN, detail, step))
    damaged = sorted(journal_root(database).rglob("*.jsonl.damaged*"))
    if damaged:
        detail = f"{len(damaged)} damaged, the first is {damaged[0]}"
        step = "they are kept for inspection; delete them when you no longer need them"
        checks.append(Check("journals", CheckState.WARN, detail, step))
    return checks or [Check("journals", CheckState.OK, "no unfinished runs")]


def _check_unfinished_run(run: "RunFolder", database: Path) -> Check:
    record = run.record
    started = datetime.fromtimestamp(record.created_at, UTC)
    detail = f"run {record.id} of {started:%Y-%m-%d %H:%M} UTC is not finished"
    holder = run.holder()
    if holder is not None:
        process = f"process {holder}" if holder else "another process"
        return Check("journals", CheckState.OK, f"{detail}: {process} is running it")
    where = "" if run.is_benchmark else f" --database {shlex.quote(str(database))}"
    return Check(
        "journals", CheckState.WARN, detail, f"to resume it: {run.resume_command}{where}"
    )


def check_disk(database: Path) -> Check:
    """Check the free disk space for traces."""
    folder = _find_existing_parent(database.parent)
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(
            "disk", CheckState.WARN, f"cannot read the free space of {folder}: {error.strerror}"
        )
    detail = f"{free / _GIB:.1f} GiB free in {folder.resolve()}"
    step = "free some space, or give another --database"
    if free < _MIN_SPACE:
        return Check("disk", CheckState.FAIL, detail, step)
    if free < _LOW_SPACE:
        return Check("disk", CheckState.WARN, detail, step)
    return Check("disk", CheckState.OK, detail)


def _find_existing_parent(folder: Path) -> Path:
    """Return the folder, or its nearest existing parent."""
    for candidate in (folder, *folder.parents):
        if candidate.exists():
            return candidate
    return Path()


def check_models() -> Check:
    """Check whether the model tables can be read, including those of the user."""
    from assay.models.registry_file import load_registry, user_rows

    path = user_rows()
    try:
        registry = load_registry()
    except UsageError as error:
        step = "correct that file, or set ASSAY_MODELS to another; see docs/models.md"
        return Check("models", CheckState.FAIL, str(error), step)
    user_file = "no user file" if path is None else f"including {path}"
    if registry.warnings:
        return Check("models", CheckState.WARN, "; ".join(registry.warnings))
    return Check("models", CheckState.OK, f"{len(registry.entries)} rows, {user_file}")


def check_providers(timeout: float = _TIMEOUT) -> list[Check]:
    """Check the providers for which a variable is set; one line lists all others."""
    import asyncio

    from assay.models.connections import find_unreachable
    from assay.models.registry_file import load_registry

    try:
        registry = load_registry()
    except UsageError:
        return []  # reported by `check_models`
    providers = registry.providers.values()
    used = [provider for provider in providers if _is_used(provider, os.environ)]
    results = [_find_access(provider) for provider in used]
    addresses = [result.address for result in results if isinstance(result, _ProviderAccess)]
    unreachable = asyncio.run(find_unreachable(addresses, timeout)) if addresses else {}
    checks = [
        result
        if isinstance(result, Check)
        else _check_response(result, unreachable.get(result.address))
        for result in results
    ]
    return [*checks, *_check_unused_providers(registry, used)]


def check_backends() -> Check:
    """Report which fine-tuning services are configured, and what others lack; no requests."""
    from importlib.util import find_spec

    from assay.finetune.backends import BACKENDS
    from assay.finetune.start import locate_service

    parts = []
    for backend in BACKENDS.values():
        try:
            address, _, lacks = locate_service(backend, None)
        except UsageError as error:
            address, lacks = None, (str(error),)
        extra = backend.loopback and find_spec("torch") is None
        missing_extra = ", without the extra 'local'" if extra else ""
        parts.append(f"{backend.name}: {'; '.join(lacks) or f'at {address}'}{missing_extra}")
    step = "'assay finetune health --backend NAME' checks whether one responds"
    return Check("finetune", CheckState.OK, ". ".join(parts), step)


class _ProviderAccess(NamedTuple):
    """A provider that can be called."""

    name: str
    key: str
    """Description of the key's source."""
    address: str


def _is_used(provider: "Provider", environment: Mapping[str, str]) -> bool:
    variables = (provider.key_variable, provider.base_url_variable)
    is_set = any(name is not None and environment.get(name) for name in variables)
    return is_set or provider.key is not None


def _find_access(provider: "Provider") -> Check | _ProviderAccess:
    from assay.models.registry import find_base_url, find_key

    try:
        key = find_key(provider)
        address = find_base_url(provider)
    except ModelRejected as error:
        return Check("provider", CheckState.WARN, f"{provider.name}: {error}")
    variable = provider.key_variable
    if key is None:
        key_source = "called without a key"
    elif variable is not None and os.environ.get(variable, "").strip():
        key_source = f"key in {variable}"
    else:
        key_source = "key in the models file"
    return _ProviderAccess(provider.name, key_source, address)


def _check_response(access: _ProviderAccess, reason: str | None) -> Check:
    start = f"{access.name}: {access.key}"
    if reason is None:
        return Check("provider", CheckState.OK, f"{start}, responds at {access.address}")
    detail = f"{start}, cannot be reached at {access.address}: {reason}"
    return Check(
        "provider", CheckState.WARN, detail, "check the address, the network and proxies"
    )


def _check_unused_providers(registry: "Registry", used: list["Provider"]) -> list[Check]:
    rest = [provider for provider in registry.providers.values() if provider not in used]
    locked = [
        f"{provider.name} ({provider.key_variable})"
        for provider in rest
        if provider.key_variable is not None and not provider.key_optional
    ]
    free = [
        provider.name
        for provider in rest
        if provider.key_variable is None or provider.key_optional
    ]
    parts = []
    if locked:
        parts.append(f"no key for {', '.join(locked)}")
    if free:
        parts.append(f"no key needed for {', '.join(free)}")
    if not parts:
        return []
    step = "set the variable in parentheses to use such models; built-in ones need no key"
    return [Check("provider", CheckState.OK, "; ".join(parts), step if locked else None)]
