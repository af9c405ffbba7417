"""assay: agents and the worlds they play in, measured honestly.

What stands in `__all__` is loaded when it is first asked for, so that
`import assay` costs next to nothing.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.api import compare as compare
    from assay.api import open as open
    from assay.api import run as run
    from assay.crafter import World as World
    from assay.metrics import metric as metric
    from assay.traces import SessionTracer as SessionTracer

__version__ = "0.1.0"

__all__ = ["SessionTracer", "World", "__version__", "compare", "metric", "open", "run"]

__getattr__ = _lazy_names(
    __name__,
    {
        "api": ("compare", "open", "run"),
        "crafter": ("World",),
        "metrics": ("metric",),
        "traces": ("SessionTracer",),
    },
)


def __dir__() -> list[str]:
    return __all__
