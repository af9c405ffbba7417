"""The world in words, for models that read.

    from assay.crafter.text import full_text, observe, parse
    print(full_text(observe(world.view())))

Holds no more than a `View` and the result of the last step do. Rules are worded from the
data in `rules`; nothing here knows how the world works.
"""

from .full import full_text
from .guide import rules_text
from .observation import MapCell, Observation, as_view, observe
from .parsing import parse
from .short import GLYPHS, short_text

__all__ = [
    "GLYPHS",
    "MapCell",
    "Observation",
    "as_view",
    "full_text",
    "observe",
    "parse",
    "rules_text",
    "short_text",
]
