"""assay: evaluates agents, and the worlds they play in.

What stands in `__all__` is loaded when it is first asked for, so that
`import assay` costs next to nothing. Every command has its function here.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names
from assay._version import __version__

if TYPE_CHECKING:
    from assay.api import analysis as analysis
    from assay.api import analyze as analyze
    from assay.api import bench_check as bench_check
    from assay.api import bench_compare as bench_compare
    from assay.api import bench_eval as bench_eval
    from assay.api import bench_import as bench_import
    from assay.api import bench_new as bench_new
    from assay.api import bench_prepare as bench_prepare
    from assay.api import bench_run as bench_run
    from assay.api import bench_summary as bench_summary
    from assay.api import bench_tag as bench_tag
    from assay.api import bench_trials as bench_trials
    from assay.api import chat_model as chat_model
    from assay.api import compare as compare
    from assay.api import delete_experiments as delete_experiments
    from assay.api import delete_sessions as delete_sessions
    from assay.api import doctor as doctor
    from assay.api import estimate as estimate
    from assay.api import experiment_log as experiment_log
    from assay.api import export as export
    from assay.api import export_experiments as export_experiments
    from assay.api import finetune_cancel as finetune_cancel
    from assay.api import finetune_check_model as finetune_check_model
    from assay.api import finetune_events as finetune_events
    from assay.api import finetune_follow as finetune_follow
    from assay.api import finetune_health as finetune_health
    from assay.api import finetune_list as finetune_list
    from assay.api import finetune_plan as finetune_plan
    from assay.api import finetune_start as finetune_start
    from assay.api import finetune_status as finetune_status
    from assay.api import finetune_test as finetune_test
    from assay.api import finetune_wait as finetune_wait
    from assay.api import fork as fork
    from assay.api import import_curves as import_curves
    from assay.api import import_traces as import_traces
    from assay.api import launch as launch
    from assay.api import list_curves as list_curves
    from assay.api import list_experiments as list_experiments
    from assay.api import list_models as list_models
    from assay.api import list_sessions as list_sessions
    from assay.api import load_curves as load_curves
    from assay.api import load_trace as load_trace
    from assay.api import merge as merge
    from assay.api import open as open
    from assay.api import over_time as over_time
    from assay.api import play as play
    from assay.api import read_experiments as read_experiments
    from assay.api import read_results as read_results
    from assay.api import register_comparison_plan as register_comparison_plan
    from assay.api import register_plan as register_plan
    from assay.api import replay as replay
    from assay.api import run as run
    from assay.api import run_loop as run_loop
    from assay.api import serve as serve
    from assay.api import serve_finetune as serve_finetune
    from assay.api import serve_models as serve_models
    from assay.api import sft_filter as sft_filter
    from assay.api import sft_show as sft_show
    from assay.api import sft_stats as sft_stats
    from assay.api import sft_trace as sft_trace
    from assay.api import sft_validate as sft_validate
    from assay.api import show_experiment as show_experiment
    from assay.api import snapshot as snapshot
    from assay.api import stored_subjects as stored_subjects
    from assay.api import tag_experiment as tag_experiment
    from assay.api import train as train
    from assay.api import try_model as try_model
    from assay.api import variance as variance
    from assay.api import verify as verify
    from assay.crafter import World as World
    from assay.crafter import warmup as warmup
    from assay.metrics import metric as metric
    from assay.traces import SessionTracer as SessionTracer

__all__ = [
    "SessionTracer",
    "World",
    "__version__",
    "analysis",
    "analyze",
    "bench_check",
    "bench_compare",
    "bench_eval",
    "bench_import",
    "bench_new",
    "bench_prepare",
    "bench_run",
    "bench_summary",
    "bench_tag",
    "bench_trials",
    "chat_model",
    "compare",
    "delete_experiments",
    "delete_sessions",
    "doctor",
    "estimate",
    "experiment_log",
    "export",
    "export_experiments",
    "finetune_cancel",
    "finetune_check_model",
    "finetune_events",
    "finetune_follow",
    "finetune_health",
    "finetune_list",
    "finetune_plan",
    "finetune_start",
    "finetune_status",
    "finetune_test",
    "finetune_wait",
    "fork",
    "import_curves",
    "import_traces",
    "launch",
    "list_curves",
    "list_experiments",
    "list_models",
    "list_sessions",
    "load_curves",
    "load_trace",
    "merge",
    "metric",
    "open",
    "over_time",
    "play",
    "read_experiments",
    "read_results",
    "register_comparison_plan",
    "register_plan",
    "replay",
    "run",
    "run_loop",
    "serve",
    "serve_finetune",
    "serve_models",
    "sft_filter",
    "sft_show",
    "sft_stats",
    "sft_trace",
    "sft_validate",
    "show_experiment",
    "snapshot",
    "stored_subjects",
    "tag_experiment",
    "train",
    "try_model",
    "variance",
    "verify",
    "warmup",
]

__getattr__, __dir__ = _lazy_names(__name__)
