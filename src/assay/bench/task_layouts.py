"""The two layouts of task folders: a repository with a patch, and Harbor's image."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from assay.bench.attempt import CodingAttempt
from assay.bench.base import NOTHING_ALLOWED, Allowed, CodingTask, Grade
from assay.bench.grading.grade import check_gradable, grade_patch
from assay.bench.grading.llm_judge import Judge
from assay.bench.harbor.attempt import (
    HarborAttempt,
    check_harbor_hidden_files,
    grade_builtin_agent,
    grade_steps,
)
from assay.bench.harbor.sandboxes import HarborSandboxes, check_images
from assay.bench.harbor.task import CONFIG, HarborTask, is_harbor_task, load_harbor_task
from assay.bench.task import BaseImages, RunnableTask, SandboxSetup, TaskCheck, TrialSetup
from assay.bench.task_checks import check_hidden_files
from assay.bench.tasks.loading import load_task
from assay.bench.trial_files import read_patch
from assay.errors import UsageError
from assay.sandboxes.base import SandboxBackend

_META: Final = "tb_meta.json"
_IDLE_PATCH: Final = b"""\
diff --git a/.assay-nothing b/.assay-nothing
new file mode 100644
index 0000000000000000000000000000000000000000..ce013625030ba8dba906f756967f9e9ca394464a
--- /dev/null
+++ b/.assay-nothing
@@ -0,0 +1 @@
+hello
"""
"""A patch that solves no task."""


@dataclass(frozen=True, slots=True)
class RepositoryTask:
    """A task on a repository: its agent leaves a patch, which hidden tests grade."""

    definition: CodingTask
    image: ClassVar[None] = None
    reference_file: ClassVar[str] = "diff.patch"
    idle_solutions: ClassVar[tuple[str, ...]] = ("an empty patch", "a patch that does nothing")

    def check_runnable(
        self, backend: SandboxBackend, images: BaseImages, *, judged: bool
    ) -> None:
        """Raise UsageError if the task cannot be scored on this machine."""
        check_gradable(self.definition, judged=judged)

    async def has_python(self, settings: SandboxSetup) -> bool:
        """Return True, because the Python that runs assay is mounted."""
        return True

    def start_attempt(self, setup: TrialSetup) -> CodingAttempt[CodingTask]:
        """Return an attempt that works on a copy of the repository."""
        return CodingAttempt(self, self.definition, setup)

    async def grade(self, run_dir: Path, settings: SandboxSetup, judge: Judge | None) -> Grade:
        """Grade the patch in a trial folder."""
        return await self._grade_diff(read_patch(run_dir), settings, judge)

    async def grade_solution(self, name: str | None, settings: SandboxSetup) -> Grade:
        """Grade the reference patch, or one of two patches that solve nothing."""
        if name is None:
            return await self._grade_diff(self.definition.reference_patch or b"", settings)
        return await self._grade_diff(
            _IDLE_PATCH if name == self.idle_solutions[1] else b"", settings
        )

    async def _grade_diff(
        self, diff: bytes, settings: SandboxSetup, judge: Judge | None = None
    ) -> Grade:
        return await grade_patch(
            self.definition,
            diff,
            settings.backend,
            folder=settings.folder,
            limits=settings.limits,
            timeout_s=settings.timeout_s,
            judge=judge,
        )

    async def check_hidden_files(self, settings: SandboxSetup) -> TaskCheck:
        """Search for lines of hidden tests, and for copies of hidden files."""
        return await check_hidden_files(self.definition, settings)


@dataclass(frozen=True, slots=True)
class ImageTask:
    """A task in Harbor's layout: its agent changes an image, and a verifier gives rewards."""

    definition: HarborTask
    reference_file: ClassVar[str] = "solution/solve.sh"
    idle_solutions: ClassVar[tuple[str, ...]] = ("doing nothing",)

    @property
    def image(self) -> str:
        """Description of its image."""
        return f"the image of {self.definition.task_id}"

    def check_runnable(
        self, backend: SandboxBackend, images: BaseImages, *, judged: bool
    ) -> None:
        """Raise UsageError if the sandbox does not support images, or one cannot be built."""
        check_images(self.definition, backend, images)

    async def has_python(self, settings: SandboxSetup) -> bool:
        """Return whether the image has Python; build it if needed."""
        return await HarborSandboxes(self.definition, settings).has_python()

    def start_attempt(self, setup: TrialSetup) -> HarborAttempt:
        """Return an attempt that works on the steps in order."""
        return HarborAttempt(self, self.definition, setup)

    async def grade(self, run_dir: Path, settings: SandboxSetup, judge: Judge | None) -> Grade:
        """Verify every step of the task that the agent attempted."""
        phases = HarborSandboxes(self.definition, settings)
        return await grade_steps(
            self.definition, phases, run_dir / "artifacts", timeout_s=settings.timeout_s
        )

    async def grade_solution(self, name: str | None, settings: SandboxSetup) -> Grade:
        """Run the reference solution, or do nothing, and verify the result."""
        agent = "oracle" if name is None else "nop"
        return await grade_builtin_agent(self.definition, agent, settings)

    async def check_hidden_files(self, settings: SandboxSetup) -> TaskCheck:
        """Check that Harbor's paths of tests and solution do not exist."""
        return await check_harbor_hidden_files(self.definition, settings)


def load_any_task(
    folder: Path, overrides: Path | None = None, allowed: Allowed = NOTHING_ALLOWED
) -> RunnableTask:
    """Read a task in either layout.

    Args:
        folder: The task folder.
        overrides: A file with changes to the task.
        allowed: Data outside its folder that the user lets the task read.

    Raises:
        UsageError: A file is missing or invalid, or something is not supported here.
    """
    if (folder / _META).is_file() or not is_harbor_task(folder):
        return RepositoryTask(load_task(folder, overrides, allowed=allowed))
    if overrides is not None:
        raise UsageError(
            f"{folder} is a Harbor task ({CONFIG}), which has no overrides; remove {overrides}"
        )
    return ImageTask(load_harbor_task(folder, allowed))
