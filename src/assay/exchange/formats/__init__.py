"""The formats in which a session leaves and enters a store."""

from assay.exchange.formats.archive import Archive, open_archive
from assay.exchange.formats.atif import ATIF_DROPS, ATIF_VERSION, dump_atif
from assay.exchange.formats.atif_read import is_atif, read_atif
from assay.exchange.formats.balrog import EPISODE_FILE, is_balrog, read_balrog
from assay.exchange.formats.foreign import load_object
from assay.exchange.formats.harbor_files import harbor_session, is_trial
from assay.exchange.formats.inspect_log import InspectLog, is_inspect
from assay.exchange.formats.trace_json import FORMAT, dump_line, dump_trace, parse_trace
from assay.traces.trace import StoredExperiment, StoredRun, Trace

__all__ = [
    "ATIF_DROPS",
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
    "harbor_session",
    "is_atif",
    "is_balrog",
    "is_inspect",
    "is_trial",
    "load_object",
    "open_archive",
    "parse_trace",
    "read_atif",
    "read_balrog",
]
