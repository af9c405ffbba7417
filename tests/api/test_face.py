"""Every command has a Python function, and importing one loads only what it needs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

import assay
from assay import api
from assay.cli import app
from assay.errors import ReplayError, UsageError
from assay.metrics import Finding
from tests.support import run_python

FUNCTIONS = {
    "analysis": "analysis register_plan",
    "analyze achievements": "analyze.achievements",
    "analyze deaths": "analyze.deaths",
    "analyze hooks": "analyze.hooks",
    "analyze actions": "analyze.actions",
    "analyze costs": "analyze.costs",
    "analyze seeds": "analyze.seeds",
    "analyze enhanced-hooks": "analyze.enhanced_hooks analyze.hook_schema",
    "analyze quality": "analyze.quality",
    "analyze training": "analyze.training",
    "bench agents": "bench_agents",
    "bench agents install": "bench_install_agent",
    "bench check": "bench_check",
    "bench compare": "bench_compare",
    "bench eval": "bench_eval bench_trials",
    "bench import": "bench_import",
    "bench new": "bench_new",
    "bench prepare": "bench_prepare",
    "bench regrade": "bench_eval",
    "bench resume": "prepare_bench_resume run_prepared_bench",
    "bench run": "bench_run bench_plan estimate_bench",
    "bench summarize": "bench_summary",
    "bench tag": "bench_tag",
    "compare": "compare over_time register_comparison_plan",
    "curves import": "import_curves",
    "curves list": "list_curves",
    "curves show": "load_curves",
    "doctor": "doctor",
    "experiments delete": "delete_experiments",
    "experiments export": "export_experiments",
    "experiments list": "list_experiments",
    "experiments log": "experiment_log",
    "experiments show": "show_experiment",
    "experiments tag": "tag_experiment",
    "finetune cancel": "finetune_cancel",
    "finetune check-model": "finetune_check_model",
    "finetune events": "finetune_events",
    "finetune health": "finetune_health",
    "finetune list": "finetune_list",
    "finetune start": "finetune_plan finetune_start finetune_follow",
    "finetune status": "finetune_status",
    "finetune test": "finetune_test",
    "finetune wait": "finetune_wait",
    "fork": "fork",
    "init": "config_template",
    "launch": "launch prepare_launch",
    "loop": "plan_loop run_loop",
    "models": "list_models",
    "models test": "try_model",
    "play": "play",
    "run": "run estimate",
    "serve": "serve",
    "serve-finetune": "serve_finetune",
    "serve-models": "serve_models",
    "sft filter": "sft_filter",
    "sft show": "sft_show",
    "sft stats": "sft_stats",
    "sft trace": "sft_trace",
    "sft validate": "sft_validate",
    "sweep": "plan_sweep sweep sweep_command",
    "traces delete": "delete_sessions",
    "traces export": "export",
    "traces import": "import_traces",
    "traces list": "list_sessions",
    "traces merge": "merge",
    "traces replay": "replay",
    "traces show": "load_trace",
    "traces snapshot": "snapshot",
    "traces verify": "verify",
    "train": "train plan_training",
    "variance": "variance",
    "verify": "verify verify_page",
    "view": "view export_view show",
    "warmup": "warmup",
}


def commands(program: App, above: str = "") -> Iterator[str]:
    """Return the names of all commands; a group is listed by its subcommands."""
    for name in program:
        if not name.startswith("-"):
            below = list(commands(program[name], f"{above}{name} "))
            if program[name].default_command is not None:
                yield f"{above}{name}"
            yield from below


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("face")
    path = folder / "traces.duckdb"
    assay.run(
        models=["builtin/random", "builtin/forager"],
        episodes=2,
        max_turns=4,
        baselines=False,
        database=path,
        traces_dir=folder / "traces",
    )
    return path


def has_name(module: object, name: str) -> bool:
    """Return whether a module has a name; `a.b` is a name in a submodule."""
    for part in name.split("."):
        module = getattr(module, part, None)
    return module is not None


def test_every_command_has_a_python_function() -> None:
    assert sorted(commands(app)) == sorted(FUNCTIONS)
    named = [name for names in FUNCTIONS.values() for name in names.split()]
    assert [name for name in named if not (has_name(api, name) or has_name(assay, name))] == []


def test_comparing_results_loads_no_compiler_database_or_plotting_library() -> None:
    program = """
import json, sys
import assay
from assay.judge.subjects import Subject, TrialOutcome

def subject(name, base):
    trials = tuple(
        TrialOutcome(trial_id=f"{name}{n}", pair=f"t {n}", seed=n, values={"x": base + n % 3})
        for n in range(6)
    )
    return Subject(id=name, name=name, trials=trials)

assay.compare(subject("a", 0.0), subject("b", 1.0))
heavy = ("numba", "duckdb", "matplotlib", "rich", "starlette", "openai", "pydantic")
print(json.dumps([name for name in heavy if name in sys.modules]))
"""
    done = run_python("-c", program)
    assert json.loads(done.output) == []


def test_sessions_are_listed_loaded_verified_and_replayed(database: Path) -> None:
    listed = assay.list_sessions(model="builtin/forager", database=database)
    assert listed.total == 2
    name = listed.runs[0].sessions[0].session_id
    assert assay.load_trace(name, database=database).session.header.session_id == name
    progress: list[tuple[int, int]] = []
    checks = assay.verify(
        database=database, progress=lambda done, total: progress.append((done, total))
    )
    assert [check.finding for check in checks] == [Finding.SAME] * 4
    assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)]
    replayed = assay.replay(name, database=database)
    assert sum(1 for _ in replayed) == replayed.steps > 0


@pytest.mark.extras
def test_exported_sessions_can_be_imported_again(database: Path, tmp_path: Path) -> None:
    written = assay.export(output=tmp_path / "all.jsonl", format="jsonl", database=database)
    assert written.sessions == 4
    other = tmp_path / "other.duckdb"
    assert assay.import_traces(tmp_path / "all.jsonl", database=other).added == 4
    assert assay.merge(other, database=tmp_path / "both.duckdb").added == 4
    assert assay.snapshot(tmp_path / "copy.duckdb", database=other).sessions == 4
    with pytest.raises(UsageError, match=r"unknown format 'xml'.*jsonl"):
        assay.export(output=tmp_path / "x", format="xml", database=database)


def test_experiments_are_listed_tagged_tracked_and_exported(
    database: Path, tmp_path: Path
) -> None:
    first, second = assay.list_experiments(database=database)
    tagged = assay.tag_experiment(first.name, version="v7.0", note="mine", database=database)
    assert tagged.version == "v7.0"
    assert assay.show_experiment(first.id, database=database).subject.note == "mine"
    assert [entry.note for entry in assay.experiment_log(first.series, database=database)] == [
        "mine"
    ]
    path = tmp_path / "experiments.json"
    written = assay.export_experiments([first.id, second.id], path, database=database)
    assert written.left_out == 0
    subjects = assay.read_experiments(path)
    assert [subject.name for subject in subjects] == list(written.names)
    assert assay.over_time(first.series, database=database).rows[0].version == "v7.0"


def test_the_database_variable_also_applies_in_python(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_DATABASE", str(database))
    assert assay.list_sessions().total == 4
    assert assay.open().path == database


def test_training_runs_are_stored_listed_and_compared(tmp_path: Path) -> None:
    files = []
    for seed in range(6):
        path = tmp_path / f"run.seed{seed}.csv"
        lines = [f"{step},{step * (1 + seed % 3 + 4 * (seed > 2))}" for step in range(5)]
        path.write_text("step,reward\n" + "\n".join(lines) + "\n")
        files.append(path)
    store = tmp_path / "curves.duckdb"
    runs, _ = assay.import_curves(*files, series="base", database=store)
    names = [run.id for run in runs]
    assert [run.id for run in assay.list_curves(database=store)] == names
    assert assay.load_curves(names[0], database=store).seed == 0
    judged = assay.analysis(
        control=names[:3], candidate=names[3:], metric="reward", database=store
    )
    assert judged.analysis.difference.point > 0
    assert judged.deviations is None
    result = assay.variance(*names, metric="reward", database=store)
    assert len(result.gathered.runs) == 6


def test_models_are_listed_and_checked() -> None:
    catalogue = assay.list_models("builtin")
    assert "builtin/noop" in catalogue.builtin
    assert catalogue.entries == ()
    model, reply = assay.try_model("builtin/noop")
    assert (model.name, reply.cost_usd) == ("builtin/noop", 0.0)
    with pytest.raises(UsageError, match="unknown provider 'opanai'"):
        assay.list_models("opanai")


def test_a_session_from_another_environment_cannot_be_replayed(tmp_path: Path) -> None:
    with assay.SessionTracer(tmp_path / "own.duckdb", name="mine", task="guess") as tracer:
        tracer.step("up", reward=1.0)
    with pytest.raises(ReplayError, match="only episodes of Crafter"):
        assay.replay("latest", database=tmp_path / "own.duckdb")
