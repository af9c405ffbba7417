"""Selection of a sandbox backend by name.

A custom backend is a class in a file, `mine.py:Class`, that is created without arguments and
implements `SandboxBackend` in `assay.sandboxes.base`: `name`, `enforcement`, `open`.
"""

import os
from pathlib import Path
from typing import Final

from assay.core.text import unknown_name
from assay.core.user_code import parse_object_spec, run_user_file
from assay.errors import UsageError
from assay.sandboxes.base import SandboxBackend
from assay.sandboxes.bubblewrap import BubblewrapBackend
from assay.sandboxes.modal.backend import ModalBackend
from assay.sandboxes.unprotected import UnprotectedBackend

VARIABLE: Final = "SANDBOX_BACKEND"
"""Environment variable with the default backend."""
_DOCKER: Final = "docker"
BACKENDS: Final[tuple[str, ...]] = (
    BubblewrapBackend.name,
    _DOCKER,
    ModalBackend.name,
    UnprotectedBackend.name,
)
_PARTS: Final = ("name", "enforcement", "open")


def choose_backend(name: str | None = None) -> SandboxBackend:
    """Return the backend with this name.

    Args:
        name: bubblewrap, docker, modal, none, or a class in a file, `mine.py:Class`; by
            default the value of `$SANDBOX_BACKEND`, else bubblewrap.

    Raises:
        UsageError: The name is unknown.
    """
    chosen = name or os.environ.get(VARIABLE) or BubblewrapBackend.name
    if chosen == BubblewrapBackend.name:
        return BubblewrapBackend()
    if chosen == _DOCKER:
        # Its HTTP client is slow to import.
        from assay.sandboxes.docker.backend import DockerBackend

        return DockerBackend()
    if chosen == ModalBackend.name:
        return ModalBackend()
    if chosen == UnprotectedBackend.name:
        return UnprotectedBackend()
    if (spec := parse_object_spec(chosen)) is not None:
        return _load_backend(*spec)
    problem = unknown_name("sandbox", chosen, [*BACKENDS, "a class in a file, mine.py:Class"])
    where = "" if name else f" (from ${VARIABLE})"
    raise UsageError(problem + where)


def _load_backend(path: Path, member: str) -> SandboxBackend:
    code = run_user_file(path, "sandboxes")
    loaded = code.names.get(member)
    if not isinstance(loaded, type):
        classes = [key for key, value in code.names.items() if isinstance(value, type)]
        others = f"; it has {', '.join(classes)}" if classes else ""
        raise UsageError(f"{path} has no class {member!r}{others}")
    missing = [part for part in _PARTS if not hasattr(loaded, part)]
    if missing:
        raise UsageError(
            f"{path}:{member} lacks {', '.join(missing)}; a backend has {', '.join(_PARTS)}, "
            "see SandboxBackend in assay.sandboxes.base"
        )
    try:
        backend: SandboxBackend = loaded()
    except TypeError as error:
        raise UsageError(f"{path}:{member} must be made without arguments: {error}") from error
    return backend
