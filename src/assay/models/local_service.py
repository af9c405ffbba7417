"""The service for local models: one that runs already, or one that is started for a command.

It ends with the last command that uses it: each holds a lock that the service waits for.
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
"""By address."""
_use: int | None = None
"""The file whose lock says that this process uses the service, once it does."""


def default_folder() -> Path:
    """Where a service keeps files, jobs and models unless it is told otherwise."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "assay" / "finetune"


def users_file(folder: Path) -> Path:
    """The file that whoever uses a service of this folder holds a shared lock on."""
    return folder / "users"


def require_local() -> None:
    """Say what to install, if something is missing.

    Raises:
        UsageError: Something is.
    """
    missing = [name for module, name in _NEEDS.items() if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"local models need {', '.join(missing)}, not installed here; install them with:"
            " pip install 'assay[local]' (from a checkout: pip install -e '.[local]')"
        )


def ensure_local(address: str, notice: Callable[[str], None] = lambda _: None) -> None:
    """Start a service where local models usually answer, if none does.

    Nothing is started at any other address.

    Args:
        address: Where somebody is to be asked.
        notice: Told that it was started, and where its log is.

    Raises:
        UsageError: What it needs is not installed.
        ServiceError: It cannot be started.
    """
    usual = load_registry().providers["local"].base_url or ""
    if address != usual or address in _started:
        return
    _share(users_file(default_folder()))
    if _answers(address):
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
            # It ends once this closes, however this process comes to its end.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # Ctrl-C is for the command alone.
            start_new_session=True,
        )
    _wait(process, log)
    if not _started:
        atexit.register(_end_all)
    _started[address] = process
    notice(f"local models answer at {address} until this command ends (log: {log})")


def _share(path: Path) -> None:
    """Tell a service that another command has started to stay, or let one that ends end."""
    global _use
    if _use is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _use = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(_use, fcntl.LOCK_SH)


def _used_by_others() -> bool:
    assert _use is not None
    try:
        fcntl.flock(_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        fcntl.flock(_use, fcntl.LOCK_UN)
    return False


def check_local(address: str) -> None:
    """Say what to do where no service answers.

    Raises:
        ServiceError: None does.
    """
    if not _answers(address):
        raise ServiceError(
            f"no fine-tuning service answers at {address}; start one there, with 'assay"
            " serve-finetune --port PORT', or leave out --base-url and ASSAY_FINETUNE_URL:"
            " then one is started for the command"
        )


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(
            f"{address.removesuffix('/v1')}/health", timeout=_PATIENCE_S
        ) as reply:
            return bool(json.load(reply)["status"] == "ok")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _wait(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until it can be asked."""
    assert process.stdout is not None
    with process.stdout as lines:
        if lines.readline():
            return
    process.wait()
    last = log.read_text("utf-8", "replace").strip().splitlines()[-1:]
    raise ServiceError(
        f"the service for local models did not start: {(last or ['it said nothing'])[0]}"
    )


def _end_all() -> None:
    others = _used_by_others()
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
