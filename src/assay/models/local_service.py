"""The service for local models: a running one, or one that is started for a command.

It ends with the last command that uses it: each has a lock that the service waits for.
"""

import atexit
import fcntl
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from assay.core.text import format_install_command
from assay.errors import ServiceError, UsageError
from assay.models.registry_file import load_registry

_NEEDS: Final = {
    "torch": "torch",
    "safetensors": "safetensors",
    "python_multipart": "python-multipart",
}
_PATIENCE_S: Final = 2.0
_END_S: Final = 15.0
_started: dict[str, "subprocess.Popen[bytes]"] = {}
"""Services started by this process, by address."""
_lock_file: int | None = None
"""Descriptor of the lock file, once this process uses the service."""


def default_folder() -> Path:
    """Return the default folder of a service for files, jobs and models."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "assay" / "finetune"


def users_file(folder: Path) -> Path:
    """Return the file on which users of the service hold a shared lock."""
    return folder / "users"


def require_local() -> None:
    """Raise UsageError if a package for local models is not installed."""
    missing = [name for module, name in _NEEDS.items() if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"local models need {', '.join(missing)}; install with: "
            f"{format_install_command('local')}"
        )


def ensure_local(address: str, notice: Callable[[str], None] = lambda _: None) -> None:
    """Start a service at the default address of local models, if none is running there.

    Nothing is started at any other address.

    Args:
        address: The address that will be called.
        notice: Called with a message after it was started.

    Raises:
        UsageError: A required package is not installed.
        ServiceError: It cannot be started.
    """
    default = load_registry().providers["local"].base_url or ""
    if address != default or address in _started:
        return
    _lock_shared(users_file(default_folder()))
    if _is_running(address):
        return
    require_local()
    log = default_folder() / "service.log"
    port = str(urlsplit(address).port)
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "assay", "serve-finetune", "--json"),
                *("--port", port, "--end-with-stdin"),
            ],
            # The service ends when this pipe closes, even if this process is killed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # Ctrl-C must only reach the command.
            start_new_session=True,
        )
    _wait_until_ready(process, log)
    if not _started:
        atexit.register(_end_all)
    _started[address] = process
    notice(f"local models are served at {address} until this command ends (log: {log})")


def _lock_shared(path: Path) -> None:
    """Take a shared lock, so that a service started by another command keeps running."""
    global _lock_file
    if _lock_file is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _lock_file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(_lock_file, fcntl.LOCK_SH)


def _is_used_by_others() -> bool:
    assert _lock_file is not None
    try:
        fcntl.flock(_lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        fcntl.flock(_lock_file, fcntl.LOCK_UN)
    return False


def check_local(address: str) -> None:
    """Raise ServiceError, with the next steps, if no service is running."""
    if not _is_running(address):
        raise ServiceError(
            f"no fine-tuning service is running at {address}; start one with 'assay"
            " serve-finetune --port PORT', or leave out --base-url and ASSAY_FINETUNE_URL to"
            " have one started for the command"
        )


def _is_running(address: str) -> bool:
    try:
        with urllib.request.urlopen(
            f"{address.removesuffix('/v1')}/health", timeout=_PATIENCE_S
        ) as reply:
            return bool(json.load(reply)["status"] == "ok")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _wait_until_ready(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until the service accepts requests; raise ServiceError if it exits."""
    assert process.stdout is not None
    with process.stdout as lines:
        if lines.readline():
            return
    process.wait()
    last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
    raise ServiceError(
        f"the service for local models did not start: {(last or ['no output'])[0]}"
    )


def _end_all() -> None:
    others = _is_used_by_others()
    for process in _started.values():
        assert process.stdin is not None
        process.stdin.close()
        if others:
            continue
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    _started.clear()
