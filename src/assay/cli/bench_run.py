"""`assay bench run` and `resume`: run tasks x models x rollouts in sandboxes.

While a benchmark runs, one line is printed per trial, and a status line shows the progress. The
other `assay bench` commands are registered here.
"""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App, Group, Parameter

from assay.cli import run_options
from assay.cli.bench_results import compare, eval_, import_, regrade, summarize, tag
from assay.cli.bench_tasks import agents, check, new, prepare
from assay.cli.options import AllowedOptions, Given, Pairs, option_groups, parse_base_images
from assay.cli.output import (
    OutputOptions,
    StatusDisplay,
    command_line,
    find_program,
    print_error,
    print_json,
    print_line,
    print_note,
    print_report,
    print_warning,
)
from assay.cli.run import stop_on_signals
from assay.cli.run_options import RunFlag, Verbosity
from assay.core.text import counted

if TYPE_CHECKING:
    from assay.bench.prepare import PreparedBench
    from assay.bench.run import BenchResult
    from assay.report.document import Document
    from assay.runs.events import Event


class BenchDisplay(StatusDisplay):
    """Display of a run's events.

    It is silent or brief, or prints plain lines (verbosity 1) or whole logs (2).
    """

    def __init__(self, prepared: "PreparedBench", *, silent: bool, verbosity: int) -> None:
        super().__init__(silent=silent, lines_only=verbosity > 0)
        self._verbosity = verbosity
        self._stamp, self._folder = prepared.config.stamp, prepared.folder
        self._total = prepared.trials
        self._done = self._ended_here = 0
        self._scores: list[float] = []
        self._cost = 0.0
        self._started_at = time.monotonic()

    def __call__(self, event: "Event") -> None:
        """Handle an event."""
        from assay.runs.events import TrialEnded, TrialRetried, TrialSkipped, TrialStarted

        if isinstance(event, TrialSkipped):
            self._done += 1
        elif isinstance(event, TrialStarted) and self._verbosity:
            spec = event.trial.payload
            self.print_message(f"Task {self._make_run_id(spec)} started: {spec.arm}")
        elif isinstance(event, TrialRetried):
            error = event.verdict.error
            reason = error.message if error else event.verdict.reason
            run_id = self._make_run_id(event.trial.payload)
            self.print_message(f"Task {run_id} will be retried in {event.wait:.0f} s: {reason}")
        elif isinstance(event, TrialEnded):
            self._record_end(event)
        self.update()

    def _record_end(self, event: Any) -> None:
        self._done += 1
        self._ended_here += 1
        run_id = self._make_run_id(event.trial.payload)
        result = getattr(event.verdict.value, "result", None)
        if result is None:
            error = event.verdict.error
            mark = "" if self._verbosity else "✗ "
            self.print_message(f"{mark}Task {run_id} ended: {error.message if error else ''}")
        else:
            mark = "" if self._verbosity else "✓ "
            details = f": {result.arm}, {result.outcome}, score {result.score:.2f}"
            self.print_message(f"{mark}Task {run_id} completed ({result.status}){details}")
            self._scores.append(result.score)
            self._cost += result.cost_usd or 0.0
        if self._verbosity > 1:
            for name in ("agent.log", "eval.log"):
                self._print_log(self._folder.get_run_dir(run_id) / "logs" / name)

    def _print_log(self, path: Path) -> None:
        if path.is_file():
            self.print_message(f"== {path}")
            for line in path.read_text("utf-8", errors="replace").splitlines():
                self.print_message(line)

    def _make_run_id(self, spec: Any) -> str:
        return f"{self._stamp}-{spec.index}"

    def format_status(self) -> str:
        """Return the progress of the benchmark."""
        parts = [f"Running tasks... {self._done}/{self._total} completed"]
        if self._ended_here and self._done < self._total:
            seconds_per_trial = (time.monotonic() - self._started_at) / self._ended_here
            minutes = seconds_per_trial * (self._total - self._done) / 60
            parts.append(f"about {counted(max(1, round(minutes)), 'minute')} left")
        if self._scores:
            parts.append(f"mean score {sum(self._scores) / len(self._scores):.2f}")
        if self._cost:
            parts.append(f"${self._cost:.4f}")
        return ", ".join(parts)


FAILED, INFRASTRUCTURE, INTERRUPTED = 1, 3, 130
_TASKS_GROUP = Group("Task overrides", sort_key=1)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class _AccessOptions(AllowedOptions):
    """Base images, and network access of tasks and image builds."""

    base_image: Pairs = None
    """Replace a FROM image by a local one: NAME=LOCAL. May be repeated."""
    build_network: RunFlag = False
    """Allow network access while images are built."""
    allow_network: Pairs = None
    """Destinations for tasks that request a network, through an HTTP(S) proxy: public, HOST or
    HOST:PORT. May be repeated."""

    def collect_settings(self) -> dict[str, Any]:
        """Return the given values by setting name; None for options that were not given."""
        return {
            "base_images": parse_base_images(self.base_image) or None,
            "build_network": self.build_network or None,
            "allow_network": self.allow_network,
            "allow_repos": self.allowed.repos or None,
            "allow_variables": self.allowed.variables or None,
        }


@option_groups(
    {"replacements": _TASKS_GROUP}, replacements="assay.bench.options:TaskReplacements"
)
def run(
    config: Path,
    /,
    *,
    settings: "run_options.BenchOptions | None" = None,
    replacements: Given,
    access: _AccessOptions = _AccessOptions(),
    fresh: RunFlag = False,
    dry_run: RunFlag = False,
    verbose: Verbosity = 0,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Run tasks from a TOML file in sandboxes, graded by hidden tests.

    Press Ctrl-C to stop. Repeat the command, or use 'assay bench resume', to continue.

    For example:

        assay bench run examples/bench/quickstart.toml
        assay bench run configs/your_benchmark.toml --dry-run

    Args:
        config: Benchmark file (TOML); docs/bench.md describes its keys.
        settings: Settings that override the file.
        replacements: Values that apply to every task.
        access: Base images and network access.
        fresh: Start a new run, even if this command has an unfinished one.
        dry_run: Print the plan, the number of trials and the estimated cost; run nothing.
        verbose: Print plain lines without icons; -vv also prints whole logs.
        show: Output options.
    """
    from assay.bench.prepare import prepare_bench

    prepared = prepare_bench(
        config,
        {**(settings or {}), **access.collect_settings()},
        command=shlex.join(["assay", *command_line.get()]),
        fresh=fresh,
        dry=dry_run,
        **replacements,
    )
    if dry_run:
        return _print_plan(prepared, show)
    return _execute(prepared, show, verbose)


def resume(
    rollout: str,
    /,
    *,
    settings: "run_options.BenchResumeOptions | None" = None,
    verbose: Verbosity = 0,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Resume an interrupted benchmark; finished trials are kept.

    For example:

        assay bench resume my_benchmark

    Args:
        rollout: Benchmark name (its latest rollout), NAME@TIME, or a tag.
        settings: Settings that may be changed.
        verbose: Print plain lines without icons; -vv also prints whole logs.
        show: Output options.
    """
    from assay.bench.prepare import prepare_bench_resume

    prepared = prepare_bench_resume(
        rollout,
        settings or {},
        command=shlex.join(["assay", *command_line.get()]),
    )
    return _execute(prepared, show, verbose)


def _execute(prepared: "PreparedBench", show: OutputOptions, verbose: int) -> int:
    from assay.bench.run import run_prepared_bench
    from assay.runs.control import Stop
    from assay.runs.events import CallbackObserver

    config, silent = prepared.config, show.quiet or show.json
    resume_command = f"{find_program()} bench resume {config.name}@{config.stamp}"
    if prepared.finished:
        if not silent:
            print_note(
                f"{config.name}@{config.stamp} is already finished; use --fresh to run it again"
            )
        return _finish(run_prepared_bench(prepared), show, resume_command)
    for warning in () if show.quiet else prepared.run.warnings:
        print_warning(warning)
    if not silent:
        print_note(
            f"[rollouts] config={config.config_file} name={config.name} "
            f"tasks={len(config.tasks)} parallel={config.parallel}"
        )
        print_note(f"[rollouts] output={prepared.folder.path}")
        for line in _describe_agents(prepared):
            print_note(f"[rollouts] {line}")
        if verbose < 2:
            print_note("[rollouts] Running in quiet mode - use -vv for full output")
        print_note(
            f"[rollouts] Starting {prepared.trials} tasks with parallel={config.parallel}"
        )
    stop = Stop()
    display = BenchDisplay(prepared, silent=silent, verbosity=verbose)
    with stop_on_signals(stop, display.print_message, resume_command), display:
        if prepared.run.resumed is not None:
            display.print_message(
                f"resuming the unfinished {config.name}@{config.stamp}; "
                "use --fresh to start a new run"
            )
        observer = CallbackObserver(display, display.print_message)
        result = run_prepared_bench(prepared, observer=observer, stop=stop)
    return _finish(result, show, resume_command)


def _finish(result: "BenchResult", show: OutputOptions, resume_command: str) -> int:
    from assay.bench.run import mark_bench_shown

    code = _print_result(result, show, resume_command)
    mark_bench_shown(result)
    return code


def _print_result(result: "BenchResult", show: OutputOptions, resume_command: str) -> int:
    from assay.bench.run import count_bench_trials

    counts = count_bench_trials(result.manifest)
    code = _choose_exit_code(result, counts)
    if show.json:
        print_json(
            {
                "rollout": f"{result.manifest.name}@{result.manifest.created_at}",
                "folder": str(result.folder),
                "interrupted": result.interrupted,
                **counts,
                **_build_summary(result).values(),
            }
        )
        return code
    if show.quiet:
        print_line(str(result.folder))
        return code
    if counts["pending"] == counts["infrastructure"] == 0:
        print_line(f"✓ All {counts['trials']} tasks completed!")
    if counts["completed"] and not result.interrupted:
        from assay.report.terminal import TerminalReport

        print_report(TerminalReport(_build_summary(result), detail=False))
    name = result.manifest.name
    print_line(f"Results: {result.folder}")
    print_line(
        f"Details: {find_program()} bench eval {name} --rollout {result.manifest.created_at}"
    )
    if counts["infrastructure"]:
        print_error(
            f"{counted(counts['infrastructure'], 'trial')} without a score because of "
            f"infrastructure errors; retry: {resume_command}"
        )
    if result.run.stopped_by is not None:
        print_error(f"the benchmark was stopped: {result.run.stopped_by}")
    for label, tally in result.run.tallies.items():
        if tally.stop is not None:
            print_error(f"{label} was stopped: {tally.stop.reason}")
    if counts["pending"]:
        print_line(
            f"Unfinished, {counted(counts['pending'], 'trial')} left. Resume: {resume_command}"
        )
    return code


def _build_summary(result: "BenchResult") -> "Document":
    from assay.api.bench import bench_summary
    from assay.report.benchmark import benchmark_document

    return benchmark_document(
        bench_summary(str(result.folder), save=True, notice=print_warning)
    )


def _choose_exit_code(result: "BenchResult", counts: dict[str, int]) -> int:
    if result.interrupted:
        return INTERRUPTED
    if counts["infrastructure"]:
        return INFRASTRUCTURE
    if any(tally.stop is not None for tally in result.run.tallies.values()):
        return FAILED
    return INFRASTRUCTURE if counts["pending"] else 0


def _print_plan(prepared: "PreparedBench", show: OutputOptions) -> int:
    from assay.bench.prepare import bench_plan

    for warning in prepared.run.warnings:
        print_warning(warning)
    plan = bench_plan(prepared)
    if show.json:
        print_json(plan)
        return 0
    config = prepared.config
    print_line(
        f"{config.name}: {counted(prepared.trials, 'trial')} of "
        f"{counted(len({task.definition.task_id for task in prepared.tasks}), 'task')} and "
        f"{counted(len(prepared.run.arms), 'arm')}, {config.parallel} at a time"
    )
    for line in (
        *_describe_trials(prepared),
        *(f"  {line}" for line in _describe_agents(prepared)),
    ):
        print_line(line)
    for sandbox, usage in plan["disk"].items():
        print_line(f"  disk in sandbox {sandbox}: {usage}")
    total: float | None = 0.0
    for estimate in plan["estimates"]:
        usd = estimate["usd"]
        cost = "$?" if usd is None else f"${usd:.2f}"
        trials = counted(estimate["trials"], "trial")
        print_line(f"  {estimate['arm']}: {trials}, {cost} ({estimate['because']})")
        total = None if total is None or usd is None else total + usd
    print_line(f"total: {'unknown' if total is None else f'${total:.2f}'}; nothing was started")
    return 0


def _describe_agents(prepared: "PreparedBench") -> Sequence[str]:
    """Return a line with the version of each installed agent."""
    from assay.bench.coders.installation import choose_default_agent, find_installed_agent

    names = dict.fromkeys(entry.agent for entry in prepared.config.tasks)
    installed = [agent for name in names if (agent := find_installed_agent(name)) is not None]
    default = choose_default_agent()
    return [
        f"agent={agent.name} version={agent.version} sha256={agent.sha256[:12]}"
        + (" (default for tasks without an agent)" if agent.name == default else "")
        for agent in installed
    ]


def _describe_trials(prepared: "PreparedBench") -> Sequence[str]:
    from assay.bench.config import make_arm_labels

    labels = make_arm_labels(prepared.config)
    return [
        f"  {task.definition.task_id} x {entry.rollouts}: {label} ({entry.prepared_dir})"
        for task, entry, label in zip(
            prepared.tasks, prepared.config.tasks, labels, strict=True
        )
    ]


bench = App(
    name="bench",
    help="""Run, summarise and compare coding benchmarks.

For example:

    assay bench run examples/bench/quickstart.toml
""",
    help_format="plaintext",
    group="Run",
)
bench.command(run, name="run")
bench.command(resume, name="resume")
bench.command(summarize, name="summarize")
bench.command(eval_, name="eval")
bench.command(regrade, name="regrade")
bench.command(compare, name="compare")
bench.command(tag, name="tag")
bench.command(import_, name="import")
bench.command(new, name="new")
bench.command(prepare, name="prepare")
bench.command(check, name="check")
bench.command(agents)
