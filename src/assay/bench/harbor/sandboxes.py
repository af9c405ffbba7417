"""The sandboxes of a Harbor trial: those in which the agent works, and those that run tests.

The agent works on a step in a sandbox on the image of the task, with the changes of the steps
before it. When the agent has ended and its processes are dead, the changed files are saved as a
tar file. Tests run in a fresh sandbox with that file, or, if the verifier is separate, in its
own image with the artifacts. Changes made by the tests of a step are not visible to later
steps.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from assay.bench.base import CodingOutcome
from assay.bench.harbor.rewards import VerifierResult, read_rewards, read_tests
from assay.bench.harbor.schema import ArtifactPart, HealthcheckPart
from assay.bench.harbor.task import (
    SOLVE,
    TEST,
    HarborStep,
    HarborTask,
    StepVerification,
    make_recipe,
)
from assay.bench.task import PYTHON, BaseImages, SandboxSetup
from assay.core.files import remove_folder
from assay.errors import SandboxUnavailable, SetupTimeout, UsageError
from assay.sandboxes.base import (
    SHARED,
    Command,
    CommandEnd,
    ImageBackend,
    ImageRecipe,
    ImageSandbox,
    Mount,
    Sandbox,
    SandboxBackend,
    SandboxSpec,
    TrialFinding,
)
from assay.sandboxes.layers import Changed, layer_paths, write_layer
from assay.sandboxes.modal.backend import ModalBackend

TESTS: Final = "/tests"
SOLUTION: Final = "/solution"
VERIFIER_LOGS: Final = "/logs/verifier"
HIDDEN: Final = (TESTS, VERIFIER_LOGS, SOLUTION)
"""Paths that are never exported from the agent's sandbox."""
_PUBLISHED_ARTIFACTS: Final = "/logs/artifacts"
"""Folder that a separate verifier always receives."""
_COMMAND_S: Final = 120.0
_PROGRAMS: Final = ("bin/", "sbin/", "lib/", "lib64/", "usr/bin/", "usr/sbin/", "usr/lib/")
_MAX_NAMED: Final = 5


def check_images(task: HarborTask, backend: SandboxBackend, images: BaseImages) -> None:
    """Check that the images of a task can be built, before anything is started.

    Raises:
        UsageError: The sandbox does not support images, or an image cannot be built.
    """
    require_image_backend(backend)
    for recipe in list_recipes(task, images):
        if isinstance(backend, ModalBackend):
            backend.check_recipe(recipe)


def require_image_backend(backend: SandboxBackend) -> ImageBackend:
    """Return the backend if it supports images; raise UsageError if it does not."""
    if not hasattr(backend, "build"):
        raise UsageError(
            f"a task with a Dockerfile cannot run in sandbox {backend.name!r}; install Docker "
            "(sudo apt install docker.io) and use --sandbox docker, or use --sandbox modal"
        )
    candidate: Any = backend
    has_images: ImageBackend = candidate
    return has_images


def list_recipes(task: HarborTask, images: BaseImages) -> list[ImageRecipe]:
    """Return the recipes of all images of a task."""
    folders = [(task.config.environment, task.folder / "environment")]
    folders += [
        (step.verification.environment, step.verification.recipe)
        for step in task.steps
        if step.verification.separate
    ]
    return [
        make_recipe(environment, folder, images.names, network=images.network)
        for environment, folder in folders
    ]


class HarborSandboxes:
    """Runs and verifies a task step by step."""

    def __init__(
        self,
        task: HarborTask,
        settings: SandboxSetup,
        *,
        network: Callable[..., tuple[str, ...]] | None = None,
    ) -> None:
        """Create the folder for intermediate files; start nothing.

        Args:
            task: The loaded task.
            settings: Settings for images and sandboxes.
            network: Returns the hosts a step may connect to, given whether it requested a
                network; by default, the limits' hosts if it did.
        """
        self._task, self._settings = task, settings
        self._backend = require_image_backend(settings.backend)
        self._network = network or (
            lambda *, requested: settings.limits.network if requested else ()
        )
        self._variables = {**task.environment, **settings.variables}
        settings.folder.mkdir(parents=True, exist_ok=True)

    async def ensure_image(self) -> str:
        """Return the image of the task; build it if it is missing."""
        return await self._build_image(
            self._task.config.environment, self._task.folder / "environment"
        )

    async def _build_image(self, environment: Any, folder: Path) -> str:
        images = self._settings.images
        recipe = make_recipe(environment, folder, images.names, network=images.network)
        limit = environment.build_timeout_sec
        try:
            return await asyncio.wait_for(self._backend.build(recipe), limit)
        except TimeoutError as error:
            raise SetupTimeout(
                f"building the image of {self._task.task_id} took longer than {limit:g} s, its "
                "build_timeout_sec"
            ) from error

    async def has_python(self) -> bool:
        """Return whether the image has Python for the agent of the first step."""
        spec = self._make_spec(await self.ensure_image(), None, self._task.steps[0].user)
        async with self._open_sandbox(spec) as sandbox:
            return await has_python(sandbox)

    @asynccontextmanager
    async def open_agent_sandbox(
        self,
        step: HarborStep,
        layer: Path | None,
        mounts: Sequence[Mount] = (),
        *,
        with_solution: bool = False,
    ) -> AsyncIterator[tuple[ImageSandbox, str]]:
        """Yield the prepared sandbox for the agent of a step, and its working directory.

        Args:
            step: The step.
            layer: Changes of the steps before it.
            mounts: Additional mounts of the agent.
            with_solution: Whether the reference solution is mounted, for the oracle.
        """
        image = await self.ensure_image()
        prepared = self._settings.folder / "prepared.tar"
        workdir = await self._prepare_files(step, image, layer, prepared)
        if with_solution and step.solution is not None:
            copied = self._copy_folders("solution", [step.solution])
            (copied / SOLVE).chmod(0o755)
            mounts = (*mounts, Mount(copied, SOLUTION))
        network = self._network(requested=step.network)
        spec = self._make_spec(
            image, prepared, step.user, network=network, workdir=workdir, mounts=mounts
        )
        async with self._open_sandbox(spec) as sandbox:
            if step.workdir_files is not None and (step.workdir_files / "setup.sh").is_file():
                await self._run_setup(sandbox, "bash setup.sh || sh setup.sh", "setup.sh")
            for check in step.healthchecks:
                await _wait_until_healthy(sandbox, check)
            yield sandbox, workdir

    async def _prepare_files(
        self, step: HarborStep, image: str, layer: Path | None, target: Path
    ) -> str:
        """Prepare the files of a step, as root; return the working directory of commands."""
        folders = ["/logs/agent", _PUBLISHED_ARTIFACTS]
        if self._task.shares_verifier:
            folders.append(VERIFIER_LOGS)
        mounts: tuple[Mount, ...] = ()
        script = f"mkdir -p {' '.join(folders)} && chmod 777 {' '.join(folders)}"
        if step.workdir_files is not None:
            mounts = (Mount(self._copy_folders("workdir", [step.workdir_files]), SHARED),)
            script += f" && cp -R {SHARED}/. ."
        spec = self._make_spec(image, layer, "0", mounts=mounts)
        async with self._open_sandbox(spec) as sandbox:
            end = await self._run_setup(sandbox, f"{script} && pwd", "preparation")
            await sandbox.export(target, exclude=(TESTS, SOLUTION))
        return end.output.decode(errors="replace").strip().splitlines()[-1]

    async def export(self, sandbox: ImageSandbox, target: Path) -> None:
        """Save the agent's changes."""
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_suffix(".new")
        await sandbox.export(draft, exclude=HIDDEN)
        draft.replace(target)

    async def verify(self, step: HarborStep, layer: Path, timeout_s: float) -> VerifierResult:
        """Run the tests of a step on the agent's work.

        Args:
            step: The step.
            layer: The agent's changes, as `export` wrote them.
            timeout_s: Time limit of the tests.
        """
        verification = step.verification
        if replaced := _list_replaced_folders(layer):
            text = f"the agent replaced {', '.join(replaced)}"
            finding = TrialFinding("logs_replaced", text)
            return VerifierResult(None, CodingOutcome.TAMPERED, (finding,))
        logs = self._make_empty_folder("verifier")
        logs.chmod(0o777)
        mounts = [Mount(logs, VERIFIER_LOGS, writable=True)]
        if verification.separate:
            image = await self._build_image(verification.environment, verification.recipe)
            lower: Path | None = await self._collect_artifacts(verification, layer)
        else:
            image, lower = await self.ensure_image(), layer
            tests = self._copy_folders("tests", verification.tests)
            (tests / TEST).chmod(0o755)
            mounts.append(Mount(tests, TESTS, writable=True))
        workdir = "" if verification.separate else None
        spec = self._make_spec(image, lower, verification.user, workdir=workdir, mounts=mounts)
        spec = replace(spec, environment=verification.variables)
        command = Command(argv=("sh", "-c", f"{TESTS}/{TEST}"), timeout_s=timeout_s)
        try:
            async with self._open_sandbox(spec) as sandbox:
                if not verification.separate:
                    await self._run_collect_hooks(sandbox, verification)
                end = await sandbox.run(command)
        except SandboxUnavailable as error:
            # No program starts if the agent has removed the shell.
            if verification.separate or not list_changed_programs(layer):
                raise
            end = CommandEnd(exit_code=None, output=str(error).encode(), seconds=0.0)
        return _read_result(end, logs, verification, layer)

    async def _run_collect_hooks(
        self, sandbox: ImageSandbox, verification: StepVerification
    ) -> None:
        for hook in verification.collect:
            command = Command(argv=("sh", "-c", hook.command), timeout_s=hook.timeout_sec)
            await sandbox.run(command)

    async def _collect_artifacts(self, verification: StepVerification, layer: Path) -> Path:
        """Return the artifacts as a layer for a separate verifier, at their original paths."""
        collected = self._make_empty_folder("collected")
        artifacts = [ArtifactPart(source=_PUBLISHED_ARTIFACTS), *verification.artifacts]
        mounts = (Mount(collected, SHARED, writable=True),)
        spec = self._make_spec(await self.ensure_image(), layer, "0", mounts=mounts)
        async with self._open_sandbox(spec) as sandbox:
            await self._run_collect_hooks(sandbox, verification)
            for artifact in artifacts:
                script = f'[ ! -e "$1" ] || cp -a --parents -- "$1" {SHARED}/'
                argv = ("sh", "-c", script, "collect", artifact.source.rstrip("/"))
                await sandbox.run(Command(argv=argv, timeout_s=_COMMAND_S))
        target = self._settings.folder / "artifacts.tar"
        changes = [
            Changed(str(path.relative_to(collected)), path)
            for path in sorted(collected.rglob("*"))
            if not any(
                _is_excluded(path.relative_to(collected), artifact) for artifact in artifacts
            )
        ]
        await asyncio.to_thread(write_layer, target, changes, ())
        return target

    def _make_spec(
        self,
        image: str,
        layer: Path | None,
        user: str | None,
        *,
        network: tuple[str, ...] = (),
        workdir: str | None = None,
        mounts: Sequence[Mount] = (),
    ) -> SandboxSpec:
        return SandboxSpec(
            mounts=tuple(mounts),
            environment=self._variables,
            workdir=(self._task.config.environment.workdir or "")
            if workdir is None
            else workdir,
            limits=replace(self._settings.limits, network=network),
            image=image,
            layer=layer,
            user=user,
        )

    @asynccontextmanager
    async def _open_sandbox(self, spec: SandboxSpec) -> AsyncIterator[ImageSandbox]:
        async with self._backend.open(spec) as opened:
            sandbox: Any = opened
            yield sandbox

    async def _run_setup(self, sandbox: ImageSandbox, script: str, purpose: str) -> CommandEnd:
        end = await sandbox.run(Command(argv=("sh", "-c", script), timeout_s=_COMMAND_S))
        if end.exit_code != 0:
            output = end.output.decode(errors="replace").strip()[-300:]
            raise SandboxUnavailable(f"{self._task.task_id}: {purpose} failed: {output}")
        return end

    def _make_empty_folder(self, name: str) -> Path:
        folder = self._settings.folder / name
        remove_folder(folder)
        folder.mkdir(parents=True)
        return folder

    def _copy_folders(self, name: str, sources: Sequence[Path]) -> Path:
        folder = self._make_empty_folder(name)
        for source in sources:
            shutil.copytree(source, folder, dirs_exist_ok=True, symlinks=True)
        folder.chmod(0o755)
        return folder


async def has_python(sandbox: Sandbox) -> bool:
    """Return whether a sandbox has Python."""
    command = Command(argv=("sh", "-c", f"command -v {PYTHON}"), timeout_s=30.0)
    return (await sandbox.run(command)).exit_code == 0


async def _wait_until_healthy(sandbox: ImageSandbox, check: HealthcheckPart) -> None:
    """Wait until a command succeeds, with the retries of the task.

    Raises:
        SandboxUnavailable: All retries failed.
    """
    command = Command(argv=("sh", "-c", check.command), timeout_s=check.timeout_sec)
    start_deadline = time.monotonic() + check.start_period_sec
    failures = 0
    while True:
        end = await sandbox.run(command)
        if end.exit_code == 0:
            return
        starting = time.monotonic() < start_deadline
        failures += not starting
        if failures >= check.retries:
            output = end.output.decode(errors="replace").strip()[-300:]
            raise SandboxUnavailable(
                f"healthcheck {check.command!r} failed {failures} times: {output}; processes "
                "end with the command that started them, so servers of an image do not run here"
            )
        await asyncio.sleep(check.start_interval_sec if starting else check.interval_sec)


def _read_result(
    end: CommandEnd, logs: Path, verification: StepVerification, layer: Path
) -> VerifierResult:
    findings = [*end.findings]
    if not verification.separate and (changed := list_changed_programs(layer)):
        more = f" and {len(changed) - _MAX_NAMED} more" if len(changed) > _MAX_NAMED else ""
        named = ", ".join(changed[:_MAX_NAMED])
        text = f"the tests ran with programs that the agent changed: {named}{more}"
        findings.append(TrialFinding("programs_changed", text))
    log = end.output.decode(errors="replace")
    tests = read_tests(logs, f"tests/{TEST}")
    if end.timed_out:
        result = VerifierResult(None, CodingOutcome.GRADING_TIMEOUT)
    else:
        result = read_rewards(logs)
    return result._replace(findings=(*findings, *result.findings), tests=tests, log=log)


def list_changed_programs(layer: Path) -> list[str]:
    """Return changed files in the program folders of an image, including deleted folders."""
    return sorted(
        f"/{path}"
        for path, _ in layer_paths(layer)
        if "__pycache__" not in path
        and any(path.startswith(top) or top.startswith(f"{path}/") for top in _PROGRAMS)
    )


def _list_replaced_folders(layer: Path) -> list[str]:
    """Return the folders needed by tests that the agent replaced with something else."""
    tops = {path.strip("/").split("/")[0] for path in HIDDEN}
    return [f"/{path}" for path, deleted in layer_paths(layer) if path in tops and not deleted]


def _is_excluded(path: Path, artifact: ArtifactPart) -> bool:
    """Return whether an artifact excludes a collected file, as tar --exclude would."""
    source = PurePosixPath(artifact.source.strip("/"))
    collected = PurePosixPath(path)
    if not collected.is_relative_to(source) or collected == source:
        return False
    inner = collected.relative_to(source)
    candidates = [inner, *inner.parents]
    return any(
        candidate.match(pattern)
        for pattern in artifact.exclude
        for candidate in candidates
        if candidate.parts
    )
