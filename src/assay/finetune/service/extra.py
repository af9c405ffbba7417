"""What the local models need beside assay itself."""

from importlib.util import find_spec
from typing import Final

from assay.errors import UsageError

__all__ = ["require_local"]

_NEEDS: Final = {
    "torch": "torch",
    "safetensors": "safetensors",
    "python_multipart": "python-multipart",
}


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
