"""assay: evaluates agents, and includes the worlds they play in.

Names imported for the type checker are loaded on first access, so that `import assay` is fast.
Every command has its function here.
"""

from typing import TYPE_CHECKING

from assay._version import __version__ as __version__
from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.agents.chat_models import chat_model as chat_model
    from assay.api import analyze as analyze
    from assay.api.bench import bench_compare as bench_compare
    from assay.api.bench import bench_import as bench_import
    from assay.api.bench import bench_summary as bench_summary
    from assay.api.bench import bench_tag as bench_tag
    from assay.api.checks import doctor as doctor
    from assay.api.comparison import compare as compare
    from assay.api.comparison import delete_experiments as delete_experiments
    from assay.api.comparison import experiment_log as experiment_log
    from assay.api.comparison import export_experiments as export_experiments
    from assay.api.comparison import list_experiments as list_experiments
    from assay.api.comparison import over_time as over_time
    from assay.api.comparison import read_experiments as read_experiments
    from assay.api.comparison import read_results as read_results
    from assay.api.comparison import register_comparison_plan as register_comparison_plan
    from assay.api.comparison import show_experiment as show_experiment
    from assay.api.comparison import stored_subjects as stored_subjects
    from assay.api.comparison import tag_experiment as tag_experiment
    from assay.api.loop import run_loop as run_loop
    from assay.api.models import list_models as list_models
    from assay.api.models import try_model as try_model
    from assay.api.notebook import show as show
    from assay.api.policies import train as train
    from assay.api.runs import estimate as estimate
    from assay.api.runs import fork as fork
    from assay.api.runs import run as run
    from assay.api.servers import play as play
    from assay.api.servers import serve as serve
    from assay.api.servers import serve_finetune as serve_finetune
    from assay.api.servers import serve_models as serve_models
    from assay.api.sft import sft_filter as sft_filter
    from assay.api.sft_files import sft_show as sft_show
    from assay.api.sft_files import sft_stats as sft_stats
    from assay.api.sft_files import sft_trace as sft_trace
    from assay.api.sft_files import sft_validate as sft_validate
    from assay.api.traces import delete_sessions as delete_sessions
    from assay.api.traces import export as export
    from assay.api.traces import import_traces as import_traces
    from assay.api.traces import list_sessions as list_sessions
    from assay.api.traces import load_trace as load_trace
    from assay.api.traces import merge as merge
    from assay.api.traces import open as open
    from assay.api.traces import replay as replay
    from assay.api.traces import snapshot as snapshot
    from assay.api.traces import verify as verify
    from assay.api.training_runs import analysis as analysis
    from assay.api.training_runs import import_curves as import_curves
    from assay.api.training_runs import list_curves as list_curves
    from assay.api.training_runs import load_curves as load_curves
    from assay.api.training_runs import register_plan as register_plan
    from assay.api.training_runs import variance as variance
    from assay.api.viewer import export_view as export_view
    from assay.api.viewer import verify_page as verify_page
    from assay.api.viewer import view as view
    from assay.bench.regrade import bench_check as bench_check
    from assay.bench.regrade import bench_eval as bench_eval
    from assay.bench.regrade import bench_new as bench_new
    from assay.bench.regrade import bench_prepare as bench_prepare
    from assay.bench.regrade import bench_trials as bench_trials
    from assay.bench.run import bench_run as bench_run
    from assay.crafter.world import World as World
    from assay.crafter.world import warmup as warmup
    from assay.episodes.metrics import metric as metric
    from assay.finetune.follow import finetune_cancel as finetune_cancel
    from assay.finetune.follow import finetune_check_model as finetune_check_model
    from assay.finetune.follow import finetune_events as finetune_events
    from assay.finetune.follow import finetune_follow as finetune_follow
    from assay.finetune.follow import finetune_health as finetune_health
    from assay.finetune.follow import finetune_list as finetune_list
    from assay.finetune.follow import finetune_status as finetune_status
    from assay.finetune.follow import finetune_test as finetune_test
    from assay.finetune.follow import finetune_wait as finetune_wait
    from assay.finetune.start import finetune_plan as finetune_plan
    from assay.finetune.start import finetune_start as finetune_start
    from assay.store.tracer import SessionTracer as SessionTracer
    from assay.training.launch.run import launch as launch

__getattr__, __dir__ = _lazy_names(__name__)
