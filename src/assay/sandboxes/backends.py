"""Which backend a name means.

A backend of one's own is a class in a file, `mine.py:Class`, which is made without arguments
and has what `SandboxBackend` in `assay.sandboxes.base` asks for: `name`, `enforcement`, `open`.
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
"""The variable that names the backend where nothing else does."""
_DOCKER: Final = "docker"
BACKENDS: Final[tuple[str, ...]] = (
    BubblewrapBackend.name,
    _DOCKER,
    ModalBackend.name,
    UnprotectedBackend.name,
)
_PARTS: Final = ("name", "enforcement", "open")


def choose_backend(name: str | None = None) -> SandboxBackend:
    """The backend of this name.

    Args:
        name: bubblewrap, docker, modal, none, or a class in a file, `mine.py:Class`; by
            default what `$SANDBOX_BACKEND` says, else bubblewrap.

    Raises:
        UsageError: It means none.
    """
    meant = name or os.environ.get(VARIABLE) or BubblewrapBackend.name
    if meant == BubblewrapBackend.name:
        return BubblewrapBackend()
    if meant == _DOCKER:
        # Its client of HTTP takes a while to import.
        from assay.sandboxes.docker.backend import DockerBackend

        return DockerBackend()
    if meant == ModalBackend.name:
        return ModalBackend()
    if meant == UnprotectedBackend.name:
        return UnprotectedBackend()
    if (own := parse_object_spec(meant)) is not None:
        return _own(*own)
    problem = unknown_name("sandbox", meant, [*BACKENDS, "a class in a file, mine.py:Class"])
    where = "" if name else f" (from ${VARIABLE})"
    raise UsageError(problem + where)


def _own(path: Path, member: str) -> SandboxBackend:
    code = run_user_file(path, "sandboxes")
    made = code.names.get(member)
    if not isinstance(made, type):
        classes = [key for key, value in code.names.items() if isinstance(value, type)]
        there = f"; there is {', '.join(classes)}" if classes else ""
        raise UsageError(f"{path} has no class {member!r}{there}")
    missing = [part for part in _PARTS if not hasattr(made, part)]
    if missing:
        raise UsageError(
            f"{path}:{member} lacks {', '.join(missing)}; a backend has {', '.join(_PARTS)}, "
            "see SandboxBackend in assay.sandboxes.base"
        )
    try:
        backend: SandboxBackend = made()
    except TypeError as error:
        raise UsageError(f"{path}:{member} must be made without arguments: {error}") from error
    return backend
