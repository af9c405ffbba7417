"""assay: agents and the worlds they play in, measured honestly.

What stands in `__all__` is loaded when it is first asked for, so that
`import assay` costs next to nothing.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.crafter import World as World

__version__ = "0.1.0"

__all__ = ["World", "__version__"]

__getattr__ = _lazy_names(__name__, {"crafter": ("World",)})


def __dir__() -> list[str]:
    return __all__
