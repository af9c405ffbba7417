"""What `assay doctor` looks at. Each check is a function that tells how one thing stands.

A check repairs nothing, raises nothing for a sick system, and takes a few seconds at most.
"""

import os
import platform
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from assay._util.provenance import provenance
from assay.errors import AccessDenied, AssayError, StoreBusy

if TYPE_CHECKING:
    from assay.traces.folder import RunFolder

__all__ = [
    "DEFAULT_SERVICE",
    "Check",
    "State",
    "check_assay",
    "check_database",
    "check_disk",
    "check_engine",
    "check_extras",
    "check_journals",
    "check_python",
    "check_service",
]

DEFAULT_SERVICE: Final = "http://localhost:8901"
_GIB: Final = 2**30
_LITTLE, _TOO_LITTLE = 2 * _GIB, _GIB // 8
_TIMEOUT: Final = 3.0
_PACKAGE: Final = re.compile(r"[\s<>=!~;\[(]")


class State(StrEnum):
    """How something stands."""

    OK = "ok"
    """Nothing to do."""
    WARN = "warn"
    """It works, or will soon, but somebody should know."""
    FAIL = "fail"
    """A run would fail because of it."""


@dataclass(frozen=True, slots=True)
class Check:
    """How one thing stands, and what to do about it."""

    name: str
    state: State
    detail: str
    next_step: str | None = None


def check_python() -> Check:
    """The Python that runs this."""
    return Check("python", State.OK, f"{platform.python_version()} at {sys.executable}")


def check_assay() -> Check:
    """The version of assay, and its commit where it runs from a checkout."""
    made = provenance()
    detail = made.assay
    if made.commit is not None:
        detail += f", commit {made.commit[:12]}{', changed since' if made.dirty else ''}"
    return Check("assay", State.OK, detail)


def check_extras() -> Check:
    """Which optional dependencies are there."""
    try:
        extras = metadata("assay").get_all("Provides-Extra") or []
        needs = requires("assay") or []
    except PackageNotFoundError:
        return Check("extras", State.WARN, "assay is not installed", "pip install assay")
    lines = [_extra(name, needs) for name in sorted(extras)]
    detail = "; ".join(lines) or "there are none"
    missing = any("without" in line for line in lines)
    step = "pip install 'assay[NAME]' adds one; no command of a plain run needs any"
    return Check("extras", State.OK, detail, step if missing else None)


def _extra(name: str, needs: list[str]) -> str:
    mark = re.compile(rf"extra\s*==\s*['\"]{re.escape(name)}['\"]")
    packages = [_PACKAGE.split(need, maxsplit=1)[0] for need in needs if mark.search(need)]
    missing = [package for package in packages if not _is_installed(package)]
    return f"{name} is there" if not missing else f"{name} without {', '.join(missing)}"


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def check_engine() -> Check:
    """Whether the engine of the world is compiled already; compiles nothing."""
    from assay.crafter.engine import jit

    root = jit._cache_root()
    home = root / f"crafter-{jit._fingerprint()}"
    if jit._intact(home):
        return Check("engine", State.OK, f"compiled, in {home}")
    if not os.access(_existing(root), os.W_OK | os.X_OK):
        return Check(
            "engine",
            State.WARN,
            f"not compiled, and {root} cannot be written to: every start would compile",
            "set ASSAY_CACHE_DIR to a folder you can write to",
        )
    step = "assay warmup compiles it now (about 20 s); so does the first run"
    return Check("engine", State.WARN, f"not compiled yet; it will be kept in {root}", step)


def check_service(url: str | None, token: str | None = None) -> Check:
    """Whether a service of worlds answers: the one named, which must, or the usual one."""
    import asyncio

    from assay.service.client import HttpClient
    from assay.service.client.http import Retries

    address = url or DEFAULT_SERVICE

    async def ask() -> None:
        only_once = Retries(attempts=1)
        timeout = _TIMEOUT if url else 1.0
        async with HttpClient(address, token=token, timeout=timeout, retries=only_once) as it:
            await it.health()

    try:
        asyncio.run(ask())
    except AccessDenied as error:
        step = "set ASSAY_SERVICE_TOKEN to the token of the service"
        return Check("service", State.FAIL if url else State.WARN, f"{address}: {error}", step)
    except (AssayError, ValueError, OSError) as error:
        if url is None:
            return Check("service", State.OK, f"none on {address}; runs do not need one")
        start = f"assay serve starts one; check the address {address} and the network"
        return Check("service", State.FAIL, str(error).splitlines()[0], start)
    return Check("service", State.OK, f"answers on {address}")


def check_database(path: Path, patience: float = _TIMEOUT) -> Check:
    """Whether traces can be written and read, and who holds the file if not."""
    from assay.traces.migrations import stored_version
    from assay.traces.queries import count_sessions
    from assay.traces.store import Store

    step = "see who owns it and its folder, or name another place with --database"
    if not path.exists():
        if not os.access(_existing(path.parent), os.W_OK | os.X_OK):
            return Check("database", State.FAIL, f"{path} cannot be made there", step)
        return Check("database", State.OK, f"{path} is not there yet; assay run makes it")
    try:
        with Store(path, patience=patience).reading() as connection:
            schema = stored_version(connection)
            episodes = count_sessions(connection)
    except StoreBusy as error:
        waits = "a run waits for it meanwhile, and loses nothing"
        return Check("database", State.WARN, str(error), waits)
    except AssayError as error:
        return Check("database", State.FAIL, str(error), "see docs/troubleshooting.md")
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        return Check("database", State.FAIL, f"{path} can be read, not written to", step)
    detail = f"{path}: schema version {schema}, {episodes} episodes, free to write to"
    return Check("database", State.OK, detail)


def check_journals(database: Path) -> list[Check]:
    """What runs left behind: those that did not finish, and journals that are damaged."""
    from assay.traces.folder import journal_root, unfinished_runs, unreadable_runs

    try:
        runs = unfinished_runs(database)
    except AssayError as error:
        return [Check("journals", State.WARN, str(error))]
    checks = [_unfinished(run, database) for run in runs]
    for folder in unreadable_runs(database):
        detail = f"{folder}/run.json cannot be read, so that run cannot go on"
        step = "repair the file, or move the folder away; its journals are kept"
        checks.append(Check("journals", State.WARN, detail, step))
    damaged = sorted(journal_root(database).rglob("*.damaged"))
    if damaged:
        detail = f"{len(damaged)} damaged, the first is {damaged[0]}"
        step = "their episodes are played anew; remove the files when you need them no more"
        checks.append(Check("journals", State.WARN, detail, step))
    return checks or [Check("journals", State.OK, "no run was left unfinished")]


def _unfinished(run: "RunFolder", database: Path) -> Check:
    record = run.record
    started = datetime.fromtimestamp(record.created_at, UTC)
    detail = f"run {record.id} of {started:%Y-%m-%d %H:%M} UTC is not finished"
    holder = run.holder()
    if holder is not None:
        who = f"process {holder}" if holder else "another process"
        return Check("journals", State.OK, f"{detail}: {who} plays it")
    words = ["assay", "run", "--resume", record.id, "--database", str(database)]
    return Check("journals", State.WARN, detail, f"{shlex.join(words)} goes on with it")


def check_disk(database: Path) -> Check:
    """How much room is left where traces go."""
    folder = _existing(database.parent)
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("disk", State.WARN, f"cannot tell for {folder}: {error.strerror}")
    detail = f"{free / _GIB:.1f} GiB free in {folder.resolve()}"
    step = "make room, or name another place with --database"
    if free < _TOO_LITTLE:
        return Check("disk", State.FAIL, detail, step)
    if free < _LITTLE:
        return Check("disk", State.WARN, detail, step)
    return Check("disk", State.OK, detail)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    for candidate in (folder, *folder.parents):
        if candidate.exists():
            return candidate
    return Path()
