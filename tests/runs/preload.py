"""Imported once by the process that starts the programs of these tests: all that is slow."""

from importlib import import_module

import assay.cli.live
import assay.players.forager
import assay.report
import assay.service.client
import assay.serving.server  # noqa: F401
from assay.api import running  # noqa: F401
from assay.crafter import warmup

for name in ("aiohttp", "openai", "pandas", "scipy.special"):
    import_module(name)
warmup()
