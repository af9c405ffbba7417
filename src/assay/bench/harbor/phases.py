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
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from assay.bench.base import CodingOutcome, TestReport
from assay.bench.harbor.rewards import read_rewards, read_tests
from assay.bench.harbor.schema import ArtifactPart, HealthcheckPart
from assay.bench.harbor.task import (
    SOLVE,
    TEST,
    HarborStep,
    HarborTask,
    StepVerification,
    recipe_of,
)
from assay.bench.task import PYTHON, BaseImages, Workplace
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
_PUBLISHED: Final = "/logs/artifacts"
"""Folder that a separate verifier always receives."""
_SHORT_S: Final = 120.0
_PROGRAMS: Final = ("bin/", "sbin/", "lib/", "lib64/", "usr/bin/", "usr/sbin/", "usr/lib/")
_NAMED: Final = 5


class Verified(NamedTuple):
    """Result of verifying a step."""

    rewards: Mapping[str, float] | None
    outcome: CodingOutcome | None = None
    """Reason for a missing reward."""
    findings: tuple[TrialFinding, ...] = ()
    tests: tuple[TestReport, ...] = ()
    log: str = ""


def check_images(task: HarborTask, backend: SandboxBackend, images: BaseImages) -> None:
    """Check that the images of a task can be built, before anything is started.

    Raises:
        UsageError: The sandbox does not support images, or an image cannot be built.
    """
    image_backend(backend)
    for recipe in recipes(task, images):
        if isinstance(backend, ModalBackend):
            backend.check_recipe(recipe)


def image_backend(backend: SandboxBackend) -> ImageBackend:
    """Return the backend if it supports images; raise UsageError if it does not."""
    if not hasattr(backend, "build"):
        raise UsageError(
            f"a task with a Dockerfile cannot run in sandbox {backend.name!r}; install Docker "
            "(sudo apt install docker.io) and use --sandbox docker, or use --sandbox modal"
        )
    made: Any = backend
    has_images: ImageBackend = made
    return has_images


def recipes(task: HarborTask, images: BaseImages) -> list[ImageRecipe]:
    """Return the recipes of all images of a task."""
    folders = [(task.config.environment, task.folder / "environment")]
    folders += [
        (step.verification.environment, step.verification.recipe)
        for step in task.steps
        if step.verification.separate
    ]
    return [
        recipe_of(environment, folder, images.names, network=images.network)
        for environment, folder in folders
    ]


class HarborPhases:
    """Runs and verifies a task step by step."""

    def __init__(
        self,
        task: HarborTask,
        place: Workplace,
        *,
        network: Callable[..., tuple[str, ...]] | None = None,
    ) -> None:
        """Create the folder of the workplace; start nothing.

        Args:
            task: The loaded task.
            place: Settings for images and sandboxes.
            network: Returns the hosts a step may connect to, given whether it requested a
                network; by default, the limits' hosts if it did.
        """
        self._task, self._place = task, place
        self._backend = image_backend(place.backend)
        self._network = network or (lambda *, asked: place.limits.network if asked else ())
        self._variables = {**task.environment, **place.variables}
        place.folder.mkdir(parents=True, exist_ok=True)

    async def image(self) -> str:
        """Return the image of the task; build it if it is missing."""
        return await self._built(
            self._task.config.environment, self._task.folder / "environment"
        )

    async def _built(self, environment: Any, folder: Path) -> str:
        images = self._place.images
        recipe = recipe_of(environment, folder, images.names, network=images.network)
        limit = environment.build_timeout_sec
        try:
            return await asyncio.wait_for(self._backend.build(recipe), limit)
        except TimeoutError as error:
            raise SetupTimeout(
                f"the image of {self._task.task_id} was not built after {limit:g} s, as its "
                "build_timeout_sec says"
            ) from error

    async def has_python(self) -> bool:
        """Return whether the image has Python for the agent of the first step."""
        spec = self._spec(await self.image(), None, self._task.steps[0].user)
        async with self._open(spec) as sandbox:
            return await has_python(sandbox)

    @asynccontextmanager
    async def working(
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
        image = await self.image()
        prepared = self._place.folder / "prepared.tar"
        workdir = await self._prepare(step, image, layer, prepared)
        if with_solution and step.solution is not None:
            copied = self._copied("solution", [step.solution])
            (copied / SOLVE).chmod(0o755)
            mounts = (*mounts, Mount(copied, SOLUTION))
        network = self._network(asked=step.network)
        spec = self._spec(
            image, prepared, step.user, network=network, workdir=workdir, mounts=mounts
        )
        async with self._open(spec) as sandbox:
            if step.workdir_files is not None and (step.workdir_files / "setup.sh").is_file():
                await self._must(sandbox, "bash setup.sh || sh setup.sh", "setup.sh")
            for check in step.healthchecks:
                await _healthy(sandbox, check)
            yield sandbox, workdir

    async def _prepare(
        self, step: HarborStep, image: str, layer: Path | None, target: Path
    ) -> str:
        """Prepare the files of a step, as root; return the working directory of commands."""
        folders = ["/logs/agent", _PUBLISHED]
        if self._task.shares_verifier:
            folders.append(VERIFIER_LOGS)
        mounts: tuple[Mount, ...] = ()
        script = f"mkdir -p {' '.join(folders)} && chmod 777 {' '.join(folders)}"
        if step.workdir_files is not None:
            mounts = (Mount(self._copied("workdir", [step.workdir_files]), SHARED),)
            script += f" && cp -R {SHARED}/. ."
        spec = self._spec(image, layer, "0", mounts=mounts)
        async with self._open(spec) as sandbox:
            end = await self._must(sandbox, f"{script} && pwd", "getting ready")
            await sandbox.export(target, exclude=(TESTS, SOLUTION))
        return end.output.decode(errors="replace").strip().splitlines()[-1]

    async def export(self, sandbox: ImageSandbox, target: Path) -> None:
        """Save the agent's changes."""
        target.parent.mkdir(parents=True, exist_ok=True)
        unready = target.with_suffix(".new")
        await sandbox.export(unready, exclude=HIDDEN)
        unready.replace(target)

    async def verify(self, step: HarborStep, layer: Path, timeout_s: float) -> Verified:
        """Run the tests of a step on the agent's work.

        Args:
            step: The step.
            layer: The agent's changes, as `export` wrote them.
            timeout_s: Time limit of the tests.
        """
        how = step.verification
        if replaced := _replaced(layer):
            text = f"the agent put something else in the place of {', '.join(replaced)}"
            finding = TrialFinding("logs_replaced", text)
            return Verified(None, CodingOutcome.TAMPERED, (finding,))
        logs = self._fresh("verifier")
        logs.chmod(0o777)
        mounts = [Mount(logs, VERIFIER_LOGS, writable=True)]
        if how.separate:
            base = await self._built(how.environment, how.recipe)
            over: Path | None = await self._collected(how, layer)
        else:
            base, over = await self.image(), layer
            tests = self._copied("tests", how.tests)
            (tests / TEST).chmod(0o755)
            mounts.append(Mount(tests, TESTS, writable=True))
        workdir = "" if how.separate else None
        spec = self._spec(base, over, how.user, workdir=workdir, mounts=mounts)
        spec = replace(spec, environment=how.variables)
        command = Command(argv=("sh", "-c", f"{TESTS}/{TEST}"), timeout_s=timeout_s)
        try:
            async with self._open(spec) as sandbox:
                if not how.separate:
                    await self._collect(sandbox, how)
                end = await sandbox.run(command)
        except SandboxUnavailable as error:
            # No program starts if the agent has removed the shell.
            if how.separate or not changed_programs(layer):
                raise
            end = CommandEnd(exit_code=None, output=str(error).encode(), seconds=0.0)
        return _verified(end, logs, how, layer)

    async def _collect(self, sandbox: ImageSandbox, how: StepVerification) -> None:
        for hook in how.collect:
            command = Command(argv=("sh", "-c", hook.command), timeout_s=hook.timeout_sec)
            await sandbox.run(command)

    async def _collected(self, how: StepVerification, layer: Path) -> Path:
        """Return the artifacts as a layer for a separate verifier, at their original paths."""
        collected = self._fresh("collected")
        found = [ArtifactPart(source=_PUBLISHED), *how.artifacts]
        mounts = (Mount(collected, SHARED, writable=True),)
        spec = self._spec(await self.image(), layer, "0", mounts=mounts)
        async with self._open(spec) as sandbox:
            await self._collect(sandbox, how)
            for artifact in found:
                script = f'[ ! -e "$1" ] || cp -a --parents -- "$1" {SHARED}/'
                argv = ("sh", "-c", script, "collect", artifact.source.rstrip("/"))
                await sandbox.run(Command(argv=argv, timeout_s=_SHORT_S))
        target = self._place.folder / "artifacts.tar"
        changes = [
            Changed(str(path.relative_to(collected)), path)
            for path in sorted(collected.rglob("*"))
            if not any(_is_left_out(path.relative_to(collected), each) for each in found)
        ]
        await asyncio.to_thread(write_layer, target, changes, ())
        return target

    def _spec(
        self,
        image: str,
        layer: Path | None,
        user: str | None,
        *,
        network: tuple[str, ...] = (),
        workdir: str | None = None,
        mounts: Sequence[Mount] = (),
    ) -> SandboxSpec:
        own = self._task.config.environment.workdir or ""
        return SandboxSpec(
            mounts=tuple(mounts),
            environment=self._variables,
            workdir=own if workdir is None else workdir,
            limits=replace(self._place.limits, network=network),
            image=image,
            layer=layer,
            user=user,
        )

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[ImageSandbox]:
        async with self._backend.open(spec) as opened:
            sandbox: Any = opened
            yield sandbox

    async def _must(self, sandbox: ImageSandbox, script: str, what: str) -> CommandEnd:
        end = await sandbox.run(Command(argv=("sh", "-c", script), timeout_s=_SHORT_S))
        if end.exit_code != 0:
            said = end.output.decode(errors="replace").strip()[-300:]
            raise SandboxUnavailable(f"{self._task.task_id}: {what} failed: {said}")
        return end

    def _fresh(self, name: str) -> Path:
        folder = self._place.folder / name
        remove_folder(folder)
        folder.mkdir(parents=True)
        return folder

    def _copied(self, name: str, sources: Sequence[Path]) -> Path:
        folder = self._fresh(name)
        for source in sources:
            shutil.copytree(source, folder, dirs_exist_ok=True, symlinks=True)
        folder.chmod(0o755)
        return folder


async def has_python(sandbox: Sandbox) -> bool:
    """Return whether a sandbox has Python."""
    command = Command(argv=("sh", "-c", f"command -v {PYTHON}"), timeout_s=30.0)
    return (await sandbox.run(command)).exit_code == 0


async def _healthy(sandbox: ImageSandbox, check: HealthcheckPart) -> None:
    """Wait until a command succeeds, with the retries of the task.

    Raises:
        SandboxUnavailable: All retries failed.
    """
    command = Command(argv=("sh", "-c", check.command), timeout_s=check.timeout_sec)
    until = time.monotonic() + check.start_period_sec
    failed = 0
    while True:
        end = await sandbox.run(command)
        if end.exit_code == 0:
            return
        starting = time.monotonic() < until
        failed += not starting
        if failed >= check.retries:
            said = end.output.decode(errors="replace").strip()[-300:]
            raise SandboxUnavailable(
                f"healthcheck {check.command!r} failed {failed} times: {said}; no process "
                "outlives the command that started it here, a server of the image included"
            )
        await asyncio.sleep(check.start_interval_sec if starting else check.interval_sec)


def _verified(end: CommandEnd, logs: Path, how: StepVerification, layer: Path) -> Verified:
    findings = [*end.findings]
    if not how.separate and (changed := changed_programs(layer)):
        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        text = (
            f"the tests ran with programs that the agent changed: {', '.join(changed[:_NAMED])}"
        )
        findings.append(TrialFinding("programs_changed", text + more))
    log = end.output.decode(errors="replace")
    tests = read_tests(logs, f"tests/{TEST}")
    if end.timed_out:
        outcome = CodingOutcome.GRADING_TIMEOUT
        return Verified(None, outcome, tuple(findings), tests, log)
    reading = read_rewards(logs)
    if reading.finding is not None:
        findings.append(reading.finding)
    return Verified(reading.rewards, reading.outcome, tuple(findings), tests, log)


def changed_programs(layer: Path) -> list[str]:
    """Return changed files in the program folders of an image, including deleted folders."""
    return sorted(
        f"/{path}"
        for path, _ in layer_paths(layer)
        if "__pycache__" not in path
        and any(path.startswith(place) or place.startswith(f"{path}/") for place in _PROGRAMS)
    )


def _replaced(layer: Path) -> list[str]:
    """Return the folders needed by tests that the agent replaced with something else."""
    places = {place.strip("/").split("/")[0] for place in HIDDEN}
    return [
        f"/{path}" for path, deleted in layer_paths(layer) if path in places and not deleted
    ]


def _is_left_out(path: Path, artifact: ArtifactPart) -> bool:
    """Return whether an artifact excludes a collected file, as tar --exclude would."""
    source = PurePosixPath(artifact.source.strip("/"))
    place = PurePosixPath(path)
    if not place.is_relative_to(source) or place == source:
        return False
    inner = place.relative_to(source)
    candidates = [inner, *inner.parents]
    return any(
        candidate.match(pattern)
        for pattern in artifact.exclude
        for candidate in candidates
        if candidate.parts
    )
