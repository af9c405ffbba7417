"""assay: agents and the worlds they play in, measured honestly.

What stands in `__all__` is loaded when it is first asked for, so that
`import assay` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.crafter import World as World

__version__ = "0.1.0"

__all__ = ["World", "__version__"]

_HOMES = {"World": "assay.crafter"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
