"""The hidden scripts of a task, run in a fresh sandbox on a patched repository.

They are never written into the repository: the sandbox has them in a folder of their own that
cannot be changed, together with the driver. What is returned is what the driver signed, held
against all else that is known.
"""

import asyncio
import json
import random
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from assay._util.text import counted, cut
from assay.bench.grading import child, driver
from assay.bench.grading.answers import read_answer
from assay.bench.grading.cross_check import check_shell, check_tests
from assay.bench.grading.metrics import Metrics, read_metrics
from assay.bench.grading.scripts import PlantedScript, plant
from assay.bench.sandboxes import UnprotectedBackend, python_mounts
from assay.bench.seams import (
    APP,
    REPOSITORY,
    CodingTask,
    Command,
    CommandEnd,
    Mount,
    ResourceLimits,
    SandboxBackend,
    SandboxSpec,
    TestReport,
    TestScript,
    TrialFinding,
)
from assay.bench.tasks import Workspace
from assay.bench.tasks.tree import read_plain_file
from assay.errors import SandboxUnavailable

__all__ = ["GRADING", "ScriptRun", "is_run", "module_names", "run_scripts"]

GRADING = "/grading"
"""Where the sandbox has the hidden tests and their driver."""
_GRACE_S = 10.0
"""For the driver to end what ran too long, and to answer."""


class ScriptRun(NamedTuple):
    """What the scripts of a task came to."""

    tests: tuple[TestReport, ...] = ()
    metrics: Metrics = Metrics({}, {})
    findings: tuple[TrialFinding, ...] = ()
    log: str = ""
    timed_out: bool = False
    tampered: bool = False


class _Places(NamedTuple):
    """Where the commands of a sandbox find things."""

    scripts: str
    """Driver and hidden tests, below it."""
    repository: str
    orders: str
    """The file that tells the driver what to do, in a folder that it may delete it from."""


class _Plan(NamedTuple):
    """The scripts, as the sandbox will have them."""

    files: Mapping[str, bytes]
    """By their paths below those of the driver."""
    scripts: Sequence[TestScript | PlantedScript]
    jobs: Sequence[Mapping[str, Any]]
    """For the driver: one for each script, then the metrics script if there is one."""


async def run_scripts(
    task: CodingTask,
    workspace: Workspace,
    backend: SandboxBackend,
    *,
    own_names: Sequence[str],
    hidden: Path,
    limits: ResourceLimits,
    timeout_s: float,
) -> ScriptRun:
    """Run the scripts of a task on a workspace that has the patch.

    Args:
        task: As it was loaded.
        workspace: With the patch in its repository.
        backend: Makes the sandbox.
        own_names: Modules that the repository had before the patch: they come before those
            that are installed.
        hidden: A new folder for the scripts.
        limits: What they may use.
        timeout_s: For all of them together.

    Raises:
        SandboxUnavailable: The sandbox or its Python does not work.
    """
    places = _Places(GRADING, REPOSITORY, "/orders/orders.json")
    if backend.name == UnprotectedBackend.name:  # which mounts nothing
        orders_file = str(hidden / "orders/orders.json")
        places = _Places(str(hidden / "scripts"), str(workspace.repo), orders_file)
    plan = _plan(task, own_names, places)
    if not plan.jobs:
        return ScriptRun()
    key = secrets.token_bytes(32)
    orders = {"key": key.hex(), "timeout_s": timeout_s, "jobs": plan.jobs}
    files = {f"scripts/{path}": content for path, content in plan.files.items()}
    files["orders/orders.json"] = json.dumps(orders).encode()
    await asyncio.to_thread(_write_files, hidden, files)
    spec = SandboxSpec(
        mounts=(
            *python_mounts(),
            Mount(workspace.app, APP, True),
            Mount(hidden / "scripts", GRADING),
            Mount(hidden / "orders", "/orders", True),
        ),
        environment=_environment(task),
        limits=limits,
    )
    command = Command(
        argv=(sys.executable, "-I", "-B", f"{places.scripts}/driver.py", places.orders),
        timeout_s=timeout_s + _GRACE_S,
    )
    async with backend.open(spec) as sandbox:
        end = await sandbox.run(command)
    if _is_as_it_was(hidden / "orders/orders.json", files["orders/orders.json"]):
        said = cut(end.output.decode("utf-8", "replace").strip()[-300:], 300)
        raise SandboxUnavailable(
            f"the grading of task {task.task_id!r} did not start in its sandbox: "
            f"{said or f'exit code {end.exit_code}'}"
        )
    return _read(task, plan, end, key)


def is_run(script: TestScript) -> bool:
    """Whether a script is run by itself; fixtures of others are not."""
    return PurePosixPath(script.path).name != "conftest.py"


def module_names(repo: Path) -> list[str]:
    """The modules and packages that a repository has at its top, or in `src`."""
    names = {
        path.stem if path.suffix == ".py" else path.name
        for folder in (repo, repo / "src")
        if folder.is_dir() and not folder.is_symlink()
        for path in folder.iterdir()
        if path.suffix == ".py" or path.is_dir()
    }
    return sorted(name for name in names if name.isidentifier())


def _plan(task: CodingTask, own_names: Sequence[str], places: _Places) -> _Plan:
    rng = random.Random(secrets.randbits(64))
    files = {
        "driver.py": Path(driver.__file__).read_bytes(),
        "child.py": Path(child.__file__).read_bytes(),
        "pytest.ini": b"[pytest]\n",
        **{f"tests/{path}": content for path, content in task.evaluation_files.items()},
    }
    scripts: list[TestScript | PlantedScript] = []
    for script in task.test_scripts:
        files[f"tests/{script.path}"] = script.content.encode()
        if is_run(script) and script.path.endswith(".py"):
            planted = plant(script, rng)
            files[f"tests/{script.path}"] = planted.content.encode()
            scripts.append(planted)
        elif is_run(script):
            scripts.append(script)
    paths = [_script(known).path for known in scripts]
    jobs = [_job(task, path, own_names, places, tests=True) for path in paths]
    if (metrics := task.metrics_script) is not None:
        files[f"tests/{metrics.path}"] = metrics.content.encode()
        jobs.append(_job(task, metrics.path, own_names, places, tests=False))
    return _Plan(files, scripts, jobs)


def _script(known: TestScript | PlantedScript) -> TestScript:
    return known.script if isinstance(known, PlantedScript) else known


def _job(
    task: CodingTask, path: str, own_names: Sequence[str], places: _Places, *, tests: bool
) -> dict[str, Any]:
    """How the driver starts a script."""
    script = f"{places.scripts}/tests/{path}"
    if not path.endswith(".py"):
        return {"name": path, "argv": ["sh", script]}
    named = task.environment.get("PYTHONPATH", "").split(":")
    folders = [str(PurePosixPath(places.repository, folder)) for folder in ("", "src", *named)]
    settings = {
        "tests": tests,
        "script": script,
        "root": places.scripts,
        "folders": list(dict.fromkeys(folders)),
        "own_names": list(own_names),
        "reports": "{reports}",
    }
    argv = [sys.executable, "-I", "-B", f"{places.scripts}/child.py", json.dumps(settings)]
    return {"name": path, "argv": argv}


def _environment(task: CodingTask) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        **task.environment,
        # What an earlier script left in HOME is nothing that a later one loads.
        "PYTHONNOUSERSITE": "1",
    }


def _is_as_it_was(path: Path, content: bytes) -> bool:
    """Whether a file has this content; nothing that took its place is followed."""
    try:
        return read_plain_file(path) == content
    except OSError:
        return False


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _read(task: CodingTask, plan: _Plan, end: CommandEnd, key: bytes) -> ScriptRun:
    answer = read_answer(end.output, key)
    noise = end.output.decode("utf-8", "replace")
    findings = list(end.findings)
    if answer.forged:
        detail = f"{counted(answer.forged, 'line')} posed as the grader's"
        findings.append(TrialFinding("answer_forged", detail))
    if answer.ends is None:
        return _without_answer(plan, end, findings, noise)
    ends = answer.ends
    if not answer.has_pytest and any(isinstance(k, PlantedScript) for k in plan.scripts):
        raise SandboxUnavailable(
            f"{sys.executable} has no pytest in the sandbox; install it: "
            "pip install 'assay[bench]'"
        )
    checked = [
        check_tests(script, e) if isinstance(script, PlantedScript) else check_shell(script, e)
        for script, e in zip(plan.scripts, ends, strict=False)
    ]
    findings += [finding for script in checked for finding in script.findings]
    if left := sum(e["left_processes"] for e in ends):
        detail = f"{counted(left, 'process', 'processes')} outlived a hidden test, and died"
        findings.append(TrialFinding("left_processes", detail))
    metrics = Metrics({}, {})
    if task.metrics_script is not None:
        metrics = read_metrics(task.metrics_script.path, ends[-1])
        findings += metrics.findings
    return ScriptRun(
        tests=tuple(report for script in checked for report in script.reports),
        metrics=metrics,
        findings=tuple(findings),
        log=_log(plan, ends),
        timed_out=any(e["timed_out"] for e in ends),
        tampered=any(script.tampered for script in checked),
    )


def _without_answer(
    plan: _Plan, end: CommandEnd, findings: Sequence[TrialFinding], noise: str
) -> ScriptRun:
    """The driver was stopped: by its time, by a limit, or by what it ran."""
    why = "the time for grading was over" if end.timed_out else "the grader was killed"
    tests = [
        TestReport(_script(known).path, name, "missing", why)
        for known in plan.scripts
        for name in (known.expected if isinstance(known, PlantedScript) else [known.path])
    ]
    killed = not end.timed_out and not any(name.endswith("_limit") for name, _ in findings)
    if killed:
        detail = f"the process that grades was killed (exit code {end.exit_code})"
        findings = [*findings, TrialFinding("grader_killed", detail)]
    return ScriptRun(
        tests=tuple(tests),
        findings=tuple(findings),
        log=noise,
        timed_out=end.timed_out,
        tampered=killed,
    )


def _log(plan: _Plan, ends: Sequence[Mapping[str, Any]]) -> str:
    """What the scripts printed; whoever reads it should know which failure is none."""
    canaries = {
        known.script.path: f"({known.canary.name} is the grader's own, and must fail)\n"
        for known in plan.scripts
        if isinstance(known, PlantedScript)
    }
    return "\n".join(
        f"== {job['name']}: exit code {end['exit_code']}, {end['seconds']:.2f} s\n"
        f"{canaries.get(job['name'], '')}{end['output']}"
        for job, end in zip(plan.jobs, ends, strict=True)
    )
