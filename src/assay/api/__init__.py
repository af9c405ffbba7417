"""Python interface of assay: every command as a function.

    import assay
    result = assay.run(models=["builtin/forager"], episodes=3)
    assay.open(result.database).episodes()

Only this package chooses classes and resolves names; `cli` calls its modules and prints. The
functions that most programs use are in `assay`; this module has the other functions behind
commands.
"""

from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.api.bench import bench_agents as bench_agents
    from assay.api.bench import bench_install_agent as bench_install_agent
    from assay.api.loop import plan_loop as plan_loop
    from assay.api.policies import plan_training as plan_training
    from assay.api.run_preparation import prepare as prepare
    from assay.api.runs import config_template as config_template
    from assay.bench.prepare import bench_plan as bench_plan
    from assay.bench.prepare import estimate_bench as estimate_bench
    from assay.bench.prepare import prepare_bench_resume as prepare_bench_resume
    from assay.bench.run import run_prepared_bench as run_prepared_bench
    from assay.training.launch.run import prepare_launch as prepare_launch
    from assay.training.sweep import plan_sweep as plan_sweep
    from assay.training.sweep import sweep as sweep
    from assay.training.sweep import sweep_command as sweep_command

__getattr__, __dir__ = _lazy_names(__name__)
