"""The sandbox `modal`: what it would be asked for; runs there are not offered yet."""

import importlib.util
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from assay.bench.seams import Enforcement, ResourceLimits, Sandbox, SandboxSpec
from assay.errors import SandboxUnavailable

__all__ = ["ModalBackend"]


class ModalBackend:
    """Plans sandboxes of modal.com, and refuses to run there."""

    name = "modal"

    def plan(self, limits: ResourceLimits, image: str | None = None) -> str:
        """What a sandbox would be made of, without an account."""
        network = "allowed" if limits.network else "blocked"
        return (
            f"modal would start image {image or 'debian_slim'} with {limits.cpus:g} CPUs and "
            f"{limits.memory_mb} MB, network {network}; its limits on processes "
            f"({limits.processes}) and disk ({limits.disk_mb} MB) would not be held"
        )

    def enforcement(self, limits: ResourceLimits) -> Enforcement:
        """Refused, with what is missing."""
        raise _refusal()

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """Refused, with what is missing."""
        raise _refusal()


def _refusal() -> SandboxUnavailable:
    missing = []
    if importlib.util.find_spec("modal") is None:
        missing.append("its client (pip install modal)")
    if "MODAL_TOKEN_ID" not in os.environ and not Path("~/.modal.toml").expanduser().exists():
        missing.append("a token (modal token new, or MODAL_TOKEN_ID and MODAL_TOKEN_SECRET)")
    lacks = f"; it would need {' and '.join(missing)}" if missing else ""
    return SandboxUnavailable(
        "runs in sandbox 'modal' are not offered yet, --dry-run shows what they would be"
        f"{lacks}; use --sandbox docker or --sandbox bubblewrap"
    )
