"""The Python face of assay: what a command can do, as a function with values in and out.

import assay
result = assay.run(models=["builtin/forager"], episodes=3)
assay.open(result.database).episodes()

Here alone classes are picked and names resolved; `cli` calls it and prints. Names are loaded
when first used, so that comparing loads no compiler.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.agents.chat_models import ask_once, chat_model

    from . import analyze
    from .bench_grading import (
        GradedTrial,
        bench_check,
        bench_eval,
        bench_new,
        bench_prepare,
        bench_trials,
    )
    from .benching import (
        BenchEstimate,
        BenchResult,
        PreparedBench,
        bench_counts,
        bench_plan,
        bench_run,
        bench_shown,
        estimate_bench,
        prepare_bench,
        prepare_bench_resume,
        run_prepared_bench,
    )
    from .benchmarks import bench_compare, bench_import, bench_summary, bench_tag
    from .catalogue import BUILTIN_PROVIDER, ModelCatalogue, list_models, try_model
    from .checking import Check, CheckState, doctor
    from .coding_agents import ListedAgent, bench_agents, bench_install_agent
    from .comparing import (
        compare,
        over_time,
        read_experiments,
        read_results,
        register_comparison_plan,
        stored_subjects,
    )
    from .data_files import (
        DatasetStats,
        RowRendering,
        ShownRow,
        sft_show,
        sft_stats,
        sft_validate,
    )
    from .estimating import config_template, estimate
    from .experiments import (
        ExperimentDetails,
        ExportedExperiments,
        delete_experiments,
        experiment_log,
        export_experiments,
        list_experiments,
        show_experiment,
        tag_experiment,
    )
    from .finetune_checks import (
        ModelCheck,
        SmokeTest,
        finetune_check_model,
        finetune_health,
        finetune_test,
    )
    from .finetune_jobs import (
        JobProgress,
        finetune_cancel,
        finetune_events,
        finetune_follow,
        finetune_list,
        finetune_status,
        finetune_wait,
    )
    from .finetuning import FinetunePlan, finetune_plan, finetune_start
    from .forking import fork, prepare_fork
    from .launching import (
        LaunchResult,
        PreparedLaunch,
        SkyLaunch,
        launch,
        launch_on_skypilot,
        launch_prepared,
        launch_shown,
        prepare_launch,
        skypilot_tasks,
    )
    from .loop_estimating import LoopEstimate, StageEstimate, estimate_loop
    from .looping import LoopPlan, LoopResult, LoopWatch, plan_loop, run_loop
    from .policies import (
        HeldOutResult,
        TrainingPlan,
        TrainingResult,
        plan_training,
        train,
        train_planned,
    )
    from .row_tracing import TracedRow, sft_trace
    from .run_preparation import prepare
    from .run_reports import run_report
    from .running import run, run_prepared
    from .sessions import (
        SessionList,
        delete_sessions,
        export,
        import_traces,
        list_sessions,
        load_trace,
        merge,
        open,
        replay,
        snapshot,
        verify,
    )
    from .sweeping import SWEEP_WINNER, plan_sweep, sweep, sweep_command
    from .training import (
        AnalysisResult,
        ImportedCurves,
        RegisteredPlan,
        VarianceResult,
        analysis,
        import_curves,
        list_curves,
        load_curves,
        register_plan,
        variance,
    )
    from .training_data import peak_memory, sft_filter
    from .worlds import play, serve, serve_finetune, serve_models

__all__ = [
    "BUILTIN_PROVIDER",
    "SWEEP_WINNER",
    "AnalysisResult",
    "BenchEstimate",
    "BenchResult",
    "Check",
    "CheckState",
    "DatasetStats",
    "ExperimentDetails",
    "ExportedExperiments",
    "FinetunePlan",
    "GradedTrial",
    "HeldOutResult",
    "ImportedCurves",
    "JobProgress",
    "LaunchResult",
    "ListedAgent",
    "LoopEstimate",
    "LoopPlan",
    "LoopResult",
    "LoopWatch",
    "ModelCatalogue",
    "ModelCheck",
    "PreparedBench",
    "PreparedLaunch",
    "RegisteredPlan",
    "RowRendering",
    "SessionList",
    "ShownRow",
    "SkyLaunch",
    "SmokeTest",
    "StageEstimate",
    "TracedRow",
    "TrainingPlan",
    "TrainingResult",
    "VarianceResult",
    "analysis",
    "analyze",
    "ask_once",
    "bench_agents",
    "bench_check",
    "bench_compare",
    "bench_counts",
    "bench_eval",
    "bench_import",
    "bench_install_agent",
    "bench_new",
    "bench_plan",
    "bench_prepare",
    "bench_run",
    "bench_shown",
    "bench_summary",
    "bench_tag",
    "bench_trials",
    "chat_model",
    "compare",
    "config_template",
    "delete_experiments",
    "delete_sessions",
    "doctor",
    "estimate",
    "estimate_bench",
    "estimate_loop",
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
    "launch_on_skypilot",
    "launch_prepared",
    "launch_shown",
    "list_curves",
    "list_experiments",
    "list_models",
    "list_sessions",
    "load_curves",
    "load_trace",
    "merge",
    "open",
    "over_time",
    "peak_memory",
    "plan_loop",
    "plan_sweep",
    "plan_training",
    "play",
    "prepare",
    "prepare_bench",
    "prepare_bench_resume",
    "prepare_fork",
    "prepare_launch",
    "read_experiments",
    "read_results",
    "register_comparison_plan",
    "register_plan",
    "replay",
    "run",
    "run_loop",
    "run_prepared",
    "run_prepared_bench",
    "run_report",
    "serve",
    "serve_finetune",
    "serve_models",
    "sft_filter",
    "sft_show",
    "sft_stats",
    "sft_trace",
    "sft_validate",
    "show_experiment",
    "skypilot_tasks",
    "snapshot",
    "stored_subjects",
    "sweep",
    "sweep_command",
    "tag_experiment",
    "train",
    "train_planned",
    "try_model",
    "variance",
    "verify",
]

__getattr__, __dir__ = _lazy_names(__name__)
