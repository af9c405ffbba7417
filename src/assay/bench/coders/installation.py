"""Installation of agents below the cache folder, one version of each.

A folder is complete if it has its `agent.json`: agents are installed in a temporary folder,
which is then moved into place.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from assay.bench.base import get_cache_folder
from assay.core.text import unknown_name
from assay.errors import UsageError

_RECORD_FILE: Final = "agent.json"
_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,99}")
_TIMEOUT_S: Final = 1800.0
_MAX_ERROR_LENGTH: Final = 400
"""Maximum length of an installer's error message."""


@dataclass(frozen=True, slots=True)
class _PackageSource:
    """Package source of an agent."""

    about: str
    installer: str
    """Either npm or pip."""
    packages: tuple[str, ...]
    """The agent, then packages that it needs but does not declare."""
    binary: str
    """Path of the executable below its folder, as a pattern."""


PROGRAMS: Final[Mapping[str, _PackageSource]] = {
    "codex": _PackageSource(
        "OpenAI's agent, from npm",
        "npm",
        ("@openai/codex",),
        "node_modules/@openai/codex-*/vendor/*/bin/codex",
    ),
    "claude-code": _PackageSource(
        "Anthropic's agent, from npm",
        "npm",
        ("@anthropic-ai/claude-code",),
        "node_modules/@anthropic-ai/claude-code-*/claude",
    ),
    "mini-swe-agent": _PackageSource(
        "the small agent of SWE-bench's authors, from PyPI",
        "pip",
        ("mini-swe-agent", "mcp"),
        "bin/python",
    ),
}
"""Agents that can be installed, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledAgent:
    """An installed agent."""

    name: str
    version: str
    sha256: str
    """Hash of all its files."""
    binary: str
    """Path of the executable, below its folder."""
    installed_at: float
    folder: Path


def get_agents_folder() -> Path:
    """Return the folder of installed agents."""
    return get_cache_folder() / "agents"


def find_installed_agent(name: str) -> InstalledAgent | None:
    """Return an agent if it is installed, or else None."""
    if name not in PROGRAMS:
        return None
    folder = get_agents_folder() / name
    try:
        record = json.loads((folder / _RECORD_FILE).read_text("utf-8"))
        return InstalledAgent(**record, folder=folder)
    except (OSError, ValueError, TypeError):
        return None


def choose_default_agent() -> str:
    """Return the default agent: codex if it is installed, or else react-coder."""
    return "react-coder" if find_installed_agent("codex") is None else "codex"


def install_agent(name: str, version: str | None = None) -> InstalledAgent:
    """Install an agent, replacing any other version of it.

    Args:
        name: The agent.
        version: A version such as 0.166.0; by default the latest.

    Raises:
        UsageError: The agent is unknown, or cannot be installed here.
    """
    source = PROGRAMS.get(name)
    if source is None:
        raise UsageError(unknown_name("agent to install", name, PROGRAMS))
    if version is not None and not _VERSION.fullmatch(version):
        raise UsageError(f"version {version!r} is not allowed; give one such as 1.2.3")
    agents = get_agents_folder()
    agents.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=agents))
    try:
        install = _install_with_npm if source.installer == "npm" else _install_with_pip
        installed_version = install(draft, source.packages, version)
        binaries = sorted(draft.glob(source.binary))
        if not binaries:
            raise UsageError(
                f"{name} {installed_version} has no {source.binary}; this version or platform "
                f"is not supported: try 'assay bench agents install {name}@VERSION'"
            )
        agent = InstalledAgent(
            name=name,
            version=installed_version,
            sha256=_hash_files(draft),
            binary=str(binaries[0].relative_to(draft)),
            installed_at=time.time(),
            folder=agents / name,
        )
        record = {key: value for key, value in asdict(agent).items() if key != "folder"}
        (draft / _RECORD_FILE).write_text(json.dumps(record, indent=2), "utf-8")
        draft.chmod(0o755)
        _move_into_place(draft, agents / name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return agent


def _move_into_place(draft: Path, target: Path) -> None:
    """Move a folder into place, replacing the existing one."""
    old = Path(tempfile.mkdtemp(prefix=".old-", dir=target.parent))
    if target.exists():
        target.rename(old / "old")
    draft.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _install_with_npm(folder: Path, packages: Sequence[str], version: str | None) -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise UsageError("npm not found; install Node.js, which includes it")
    required = [f"{packages[0]}@{version or 'latest'}", *packages[1:]]
    # Scripts of packages are not run on this machine.
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock")
    _run_installer([npm, "install", "--prefix", str(folder), *options, *required], packages[0])
    manifest = folder / "node_modules" / packages[0] / "package.json"
    return str(json.loads(manifest.read_text("utf-8"))["version"])


def _install_with_pip(folder: Path, packages: Sequence[str], version: str | None) -> str:
    _run_installer([sys.executable, "-m", "venv", str(folder)], packages[0])
    python = str(folder / "bin" / "python")
    required = [f"{packages[0]}=={version}" if version else packages[0], *packages[1:]]
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    # One at a time: installing both at once had not finished after 500 s.
    for package in required:
        _run_installer([*pip, "install", "--quiet", package], packages[0])
    code = f"import importlib.metadata as m; print(m.version({packages[0]!r}))"
    return _run_installer([python, "-c", code], packages[0]).strip()


def _run_installer(argv: Sequence[str], package: str) -> str:
    try:
        process = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"installing {package} took longer than {_TIMEOUT_S:g} s; check the network"
        ) from error
    if process.returncode:
        output = (process.stderr or process.stdout).strip()[-_MAX_ERROR_LENGTH:]
        raise UsageError(
            f"{package} cannot be installed: {output}; check the version and the network"
        )
    return process.stdout


def _hash_files(folder: Path) -> str:
    """Hash all files with their paths, without compiled Python files."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.suffix == ".pyc":
            continue
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
