"""Slow imports, done once by the process that starts the programs of these tests."""

from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages

import assay
from assay.crafter import warmup

for module in walk_packages(assay.__path__, "assay."):
    if not module.name.endswith("__main__"):
        # Some modules need an extra that is not installed.
        with suppress(ImportError):
            import_module(module.name)
for name in ("aiohttp", "openai", "pandas", "scipy.stats", "PIL.PngImagePlugin"):
    import_module(name)
warmup()
