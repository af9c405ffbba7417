"""The formats in which a session leaves and enters a store."""

from .archive import Archive, open_archive
from .atif import ATIF_VERSION, dump_atif
from .atif_read import is_atif, read_atif
from .balrog import EPISODE_FILE, is_balrog, read_balrog
from .foreign import load_object
from .inspect_log import InspectLog, is_inspect
from .trace import StoredExperiment, StoredRun, Trace
from .trace_json import dump_line, dump_trace, parse_trace
from .wire import FORMAT

__all__ = [
    "ATIF_VERSION",
    "EPISODE_FILE",
    "FORMAT",
    "Archive",
    "InspectLog",
    "StoredExperiment",
    "StoredRun",
    "Trace",
    "dump_atif",
    "dump_line",
    "dump_trace",
    "is_atif",
    "is_balrog",
    "is_inspect",
    "load_object",
    "open_archive",
    "parse_trace",
    "read_atif",
    "read_balrog",
]
