"""Execution of a task's hidden scripts in a fresh sandbox, on a patched repository.

The scripts are never written into the repository. They are in a separate folder of the sandbox,
together with the driver, which removes them from there before anything else runs. Only output
lines that the driver signed with the key of this grading count; everything else on the stream
is ignored. The signed results are cross-checked before they are returned.
"""

import asyncio
import base64
import hmac
import json
import random
import secrets
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from assay.bench.base import APP, CodingTask, GradingMode, TestReport, TestScript
from assay.bench.grading.cross_check import check_shell, check_tests
from assay.bench.grading.driver import ANSWER
from assay.bench.grading.scripts import (
    PACKAGE,
    Metrics,
    PlantedScript,
    is_separate,
    plant_canary,
    read_metrics,
)
from assay.bench.tasks.workspace import Workspace
from assay.core.files import read_plain_file
from assay.core.text import counted, cut, format_install_command
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import (
    REPOSITORY,
    Command,
    CommandEnd,
    Mount,
    ResourceLimits,
    SandboxBackend,
    SandboxSpec,
    TrialFinding,
)
from assay.sandboxes.folders import limited_disk
from assay.sandboxes.roots import python_mounts
from assay.sandboxes.unprotected import UnprotectedBackend


class DriverAnswer(NamedTuple):
    """Output of the driver."""

    ends: list[dict[str, Any]] | None
    """How each script ended, in order; None if the driver did not finish."""
    has_pytest: bool
    is_confined: bool
    """Whether hidden files were hidden from programs, and the repository from their tests."""
    forged: int
    """Number of lines that look like an answer but are not signed."""


def read_answer(output: bytes, key: bytes) -> DriverAnswer:
    """Parse the output of a driver that was given this key."""
    ends, has_pytest, is_confined, forged = None, True, False, 0
    for line in output.split(b"\n"):
        word, _, rest = line.partition(b" ")
        if word != ANSWER.encode():
            continue
        signature, _, body = rest.partition(b" ")
        if not hmac.compare_digest(signature, hmac.digest(key, body, "sha256").hex().encode()):
            forged += 1
            continue
        data = json.loads(zlib.decompress(base64.b64decode(body)))
        ends, has_pytest, is_confined = data["ends"], data["has_pytest"], data["is_confined"]
    return DriverAnswer(ends, has_pytest, is_confined, forged)


GRADING = "/grading"
"""Path of the hidden tests and their driver in a sandbox."""
_GRADER_FILES = {
    f"{PACKAGE}/__init__.py": b"from .programs import ProgramEnd, run_program\n",
    f"{PACKAGE}/pytest.ini": b"[pytest]\n",
    **{
        f"{PACKAGE}/{name}.py": Path(__file__).with_name(f"{name}.py").read_bytes()
        for name in ("child", "driver", "landlock", "programs")
    },
}
_GRACE_S = 10.0
"""Time for the driver to stop scripts that ran too long, and to answer."""


class ScriptRun(NamedTuple):
    """Result of running the scripts of a task."""

    tests: tuple[TestReport, ...] = ()
    metrics: Metrics = Metrics({}, {})
    findings: tuple[TrialFinding, ...] = ()
    log: str = ""
    timed_out: bool = False
    tampered: bool = False
    mode: GradingMode | None = None
    """None if nothing was run, or the mode is unknown."""


class _Paths(NamedTuple):
    """Paths in the sandbox."""

    hidden: str
    """Folder of the driver and the hidden tests."""
    repository: str
    app: str
    """The folder that contains the repository."""
    orders: str
    """Folder of the orders file for the driver, which can delete the file there."""


class _ScriptPlan(NamedTuple):
    """The scripts as they will be in the sandbox."""

    files: Mapping[str, bytes]
    """Contents by path, below the folder of the driver."""
    scripts: Sequence[TestScript | PlantedScript]
    jobs: Sequence[Mapping[str, Any]]
    """Jobs for the driver: one for each script, then the metrics script, if any."""


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
    """Run the scripts of a task on a workspace with the patch applied.

    Args:
        task: The loaded task.
        workspace: The workspace, with the patch applied to its repository.
        backend: Creates the sandbox.
        own_names: Modules that the repository had before the patch; they take precedence over
            installed ones.
        hidden: A new folder for the scripts.
        limits: Resource limits of the scripts.
        timeout_s: Time limit of all scripts together.

    Raises:
        SandboxUnavailable: The sandbox or its Python does not work.
    """
    paths = _Paths(GRADING, REPOSITORY, APP, "/orders")
    if backend.name == UnprotectedBackend.name:  # it mounts nothing
        folders = (hidden / "scripts", workspace.repo, workspace.app, hidden / "orders")
        paths = _Paths(*map(str, folders))
    plan = _plan_scripts(task, own_names, paths)
    if not plan.jobs:
        return ScriptRun()
    key = secrets.token_bytes(32)
    orders = {
        "key": key.hex(),
        "timeout_s": timeout_s,
        "jobs": plan.jobs,
        "places": paths._asdict(),
    }
    files = {f"scripts/{path}": content for path, content in plan.files.items()}
    files["orders/orders.json"] = json.dumps(orders).encode()
    await asyncio.to_thread(_write_files, hidden, files)
    command = Command(
        argv=_make_command("driver", paths.hidden, f"{paths.orders}/orders.json"),
        timeout_s=timeout_s + _GRACE_S,
    )
    # Grading never has network access, even if the agent had.
    limits = replace(limits, network=())
    async with limited_disk(backend, limits, workspace.app, hidden) as disk:
        workspace = replace(workspace, disk=disk)
        hidden = disk / hidden.name if disk else hidden
        spec = SandboxSpec(
            mounts=(
                *python_mounts(),
                Mount(workspace.app, APP, True),
                Mount(hidden / "scripts", GRADING, True),
                Mount(hidden / "orders", "/orders", True),
            ),
            environment=_make_environment(task),
            limits=limits,
            disk=disk,
        )
        async with backend.open(spec) as sandbox:
            end = await sandbox.run(command)
        is_unread = _has_content(hidden / "orders/orders.json", files["orders/orders.json"])
    if is_unread:
        output = cut(end.output.decode("utf-8", "replace").strip()[-300:], 300)
        raise SandboxUnavailable(
            f"the grading of task {task.task_id!r} did not start in its sandbox: "
            f"{output or f'exit code {end.exit_code}'}"
        )
    return _read_run(task, plan, end, key)


def is_runnable_script(script: TestScript) -> bool:
    """Return whether a script is run by itself, unlike fixtures."""
    return PurePosixPath(script.path).name != "conftest.py"


def list_module_names(repo: Path) -> list[str]:
    """Return the names of modules and packages at the top of a repository, or in `src`."""
    names = {
        path.stem if path.suffix == ".py" else path.name
        for folder in (repo, repo / "src")
        if folder.is_dir() and not folder.is_symlink()
        for path in folder.iterdir()
        if path.suffix == ".py" or path.is_dir()
    }
    return sorted(name for name in names if name.isidentifier())


def _plan_scripts(task: CodingTask, own_names: Sequence[str], paths: _Paths) -> _ScriptPlan:
    rng = random.Random(secrets.randbits(64))
    tests = dict(task.evaluation_files)
    scripts: list[TestScript | PlantedScript] = []
    for script in task.test_scripts:
        tests[script.path] = script.content.encode()
        if is_runnable_script(script) and script.path.endswith(".py"):
            planted = plant_canary(script, rng)
            tests[script.path] = planted.content.encode()
            scripts.append(planted)
        elif is_runnable_script(script):
            scripts.append(script)
    script_paths = [_get_test_script(script).path for script in scripts]
    if (metrics := task.metrics_script) is not None:
        tests[metrics.path] = metrics.content.encode()
        script_paths.append(metrics.path)
    jobs = [
        _make_job(
            task,
            path,
            own_names,
            paths,
            number=number,
            tests=number < len(scripts),
            separate=path.endswith(".py") and is_separate(path, tests),
        )
        for number, path in enumerate(script_paths)
    ]
    files = {f"tests/{path}": content for path, content in tests.items()}
    return _ScriptPlan(_GRADER_FILES | files, scripts, jobs)


def _make_command(module: str, folder: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module of the grader in the sandbox."""
    start = f"import sys; sys.path.insert(0, {folder!r}); from {PACKAGE}.{module} import main"
    return (sys.executable, "-I", "-B", "-c", f"{start}; del sys.path[0]; main()", *arguments)


def _get_test_script(script: TestScript | PlantedScript) -> TestScript:
    return script.script if isinstance(script, PlantedScript) else script


def _make_job(
    task: CodingTask,
    path: str,
    own_names: Sequence[str],
    paths: _Paths,
    *,
    number: int,
    tests: bool,
    separate: bool,
) -> dict[str, Any]:
    """Return the driver's job for a script, which runs in the folder of this number."""
    root = f"{paths.hidden}/{number}"
    script = f"{root}/tests/{path}"
    if not path.endswith(".py"):
        return {"name": path, "argv": ["sh", script], "separate": False}
    extra = task.environment.get("PYTHONPATH", "").split(":")
    folders = [str(PurePosixPath(paths.repository, folder)) for folder in ("", "src", *extra)]
    settings = {
        "tests": tests,
        "separate": separate,
        "script": script,
        "scripts": [f"{root}/tests/{test_script.path}" for test_script in task.test_scripts],
        "root": root,
        "folders": [] if separate else list(dict.fromkeys(folders)),
        "own_names": list(own_names),
    }
    argv = _make_command("child", root, json.dumps(settings), "{reports}", "{programs}")
    return {"name": path, "argv": argv, "separate": separate}


def _make_environment(task: CodingTask) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        **task.environment,
        # So that files which a script leaves in HOME are not loaded by later ones.
        "PYTHONNOUSERSITE": "1",
    }


def _has_content(path: Path, content: bytes) -> bool:
    """Return whether a file has this content, without following links."""
    try:
        return read_plain_file(path) == content
    except OSError:
        return False


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _read_run(task: CodingTask, plan: _ScriptPlan, end: CommandEnd, key: bytes) -> ScriptRun:
    answer = read_answer(end.output, key)
    output = end.output.decode("utf-8", "replace")
    findings = list(end.findings)
    if answer.forged:
        detail = f"{counted(answer.forged, 'line')} imitated the grader's answer"
        findings.append(TrialFinding("answer_forged", detail))
    if answer.ends is None:
        return _make_unanswered_run(plan, end, findings, output)
    ends = answer.ends
    if not answer.has_pytest and any(isinstance(s, PlantedScript) for s in plan.scripts):
        raise SandboxUnavailable(
            f"{sys.executable} has no pytest in the sandbox; install it: "
            f"{format_install_command('bench')}"
        )
    limited = any(finding.name.endswith("_limit") for finding in findings)
    checked = [
        check_tests(script, script_end, limited=limited)
        if isinstance(script, PlantedScript)
        else check_shell(script, script_end)
        for script, script_end in zip(plan.scripts, ends, strict=False)
    ]
    findings += [finding for script in checked for finding in script.findings]
    if left_processes := sum(script_end["left_processes"] for script_end in ends):
        detail = f"processes killed after a hidden test: {left_processes}"
        findings.append(TrialFinding("left_processes", detail))
    is_separate_run = answer.is_confined and all(job["separate"] for job in plan.jobs)
    metrics = Metrics({}, {})
    if task.metrics_script is not None:
        metrics = read_metrics(task.metrics_script.path, ends[-1])
        findings += metrics.findings
    return ScriptRun(
        tests=tuple(report for script in checked for report in script.reports),
        metrics=metrics,
        findings=tuple(findings),
        log=_format_log(plan, ends),
        timed_out=any(script_end["timed_out"] for script_end in ends),
        tampered=any(script.tampered for script in checked),
        mode=GradingMode.SEPARATE if is_separate_run else GradingMode.IN_PROCESS,
    )


def _make_unanswered_run(
    plan: _ScriptPlan, end: CommandEnd, findings: Sequence[TrialFinding], output: str
) -> ScriptRun:
    """Return the result if the driver was stopped: by its timeout, a limit, or code it ran."""
    reason = "grading reached its time limit" if end.timed_out else "the grader was killed"
    tests = [
        TestReport(_get_test_script(script).path, name, "missing", reason)
        for script in plan.scripts
        for name in (script.expected if isinstance(script, PlantedScript) else [script.path])
    ]
    killed = not end.timed_out and not any(name.endswith("_limit") for name, _ in findings)
    if killed:
        detail = f"the grading process was killed (exit code {end.exit_code})"
        findings = [*findings, TrialFinding("grader_killed", detail)]
    return ScriptRun(
        tests=tuple(tests),
        findings=tuple(findings),
        log=output,
        timed_out=end.timed_out,
        tampered=killed,
    )


def _format_log(plan: _ScriptPlan, ends: Sequence[Mapping[str, Any]]) -> str:
    """Return the output of the scripts, with a note on the canary's expected failure."""
    canaries = {
        script.script.path: f"({script.canary} was added by the grader and must fail)\n"
        for script in plan.scripts
        if isinstance(script, PlantedScript)
    }
    return "\n".join(
        f"== {job['name']}: exit code {end['exit_code']}, {end['seconds']:.2f} s\n"
        f"{canaries.get(job['name'], '')}{end['output']}"
        for job, end in zip(plan.jobs, ends, strict=True)
    )
