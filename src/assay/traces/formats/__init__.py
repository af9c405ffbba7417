"""The formats in which a session leaves and enters a store."""

from .atif import ATIF_VERSION, dump_atif
from .trace import StoredExperiment, StoredRun, Trace
from .trace_json import dump_line, dump_trace, parse_trace

__all__ = [
    "ATIF_VERSION",
    "StoredExperiment",
    "StoredRun",
    "Trace",
    "dump_atif",
    "dump_line",
    "dump_trace",
    "parse_trace",
]
