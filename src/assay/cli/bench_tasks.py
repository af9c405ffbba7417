"""`assay bench new`, `prepare` and `check` create and check tasks; `agents` manages agents."""

import json
import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from assay.cli.options import AllowedOptions, Given, Pairs, option_groups, parse_base_images
from assay.cli.output import (
    OutputOptions,
    find_program,
    print_json,
    print_line,
    print_note,
    print_warning,
    show_spinner,
)
from assay.cli.tables import print_wrapped
from assay.errors import UsageError

FAILED = 1


@option_groups(options="assay.bench.options:NewTaskOptions")
def new(
    repository: Path,
    /,
    *,
    start: str,
    end: str = "HEAD",
    into: Path = Path("data/tasks/created"),
    options: Given,
    instructions_file: Annotated[Path | None, Parameter(show_default=False)] = None,
    rubric: Annotated[
        list[str] | None, Parameter(negative="", show_default="one for each test file")
    ] = None,
    tag: Annotated[list[str] | None, Parameter(negative="", show_default=False)] = None,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Create a task from the changes between two git commits.

    Changed test files become the hidden tests; all other changes are the reference solution.

    For example:

        assay bench new . --start HEAD~1 --title "Fix the parser"

    Args:
        repository: Local git repository.
        start: Commit from which the agent starts.
        end: Commit with the solution and its tests.
        into: Parent of the new task folder.
        options: Texts of the task.
        instructions_file: Read the instructions from this file.
        rubric: Grading criterion, as ID=TEXT. May be repeated.
        tag: Tag of the task. May be repeated.
        show: Output options.
    """
    from assay.bench.regrade import bench_new

    if instructions_file is not None:
        if "instructions" in options:
            raise UsageError("give --instructions or --instructions-file, not both")
        from assay.core.values import file_text

        options = {**options, "instructions": file_text(instructions_file)}
    rubrics = dict(_parse_rubric(text) for text in rubric or ())
    folder = bench_new(
        repository,
        start,
        end,
        into,
        rubrics=rubrics or None,
        tags=tag or (),
        **options,
    )
    repo = json.loads((folder / "tb_meta.json").read_bytes())["repo"]["git_url"]
    allow = f"--allow-repo {shlex.quote(repo)}"
    _print_created(folder, f"{find_program()} bench prepare {folder} {allow}", show)
    return 0


def prepare(
    created: Path,
    /,
    *,
    into: Path = Path("data/tasks/prepared"),
    name: Annotated[str | None, Parameter(show_default="the name of the task")] = None,
    allow_repo: Pairs = None,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Prepare a task to run offline, with a copy of its repository.

    For example:

        assay bench prepare data/tasks/created/fix-the-parser_20250824_123456 --allow-repo .

    Args:
        created: Task folder, as written by 'assay bench new'.
        into: Parent of the new folder.
        name: Name of the new folder.
        allow_repo: Path outside the task that its git_url may use. May be repeated.
        show: Output options.
    """
    from assay.bench.regrade import bench_prepare

    with show_spinner(show, "preparing"):
        folder = bench_prepare(created, into, name=name, allow_repos=allow_repo or ())
    _print_created(folder, f"{find_program()} bench check {folder}", show)
    return 0


@option_groups(options="assay.bench.options:TaskCheckOptions")
def check(
    task: Path,
    /,
    *,
    options: Given,
    timeout: float = 600.0,
    base_image: Pairs = None,
    allow: AllowedOptions = AllowedOptions(),
    show: OutputOptions = OutputOptions(),
) -> int:
    """Check a task: the reference must score 1, an empty solution 0.

    The reference solution is graded several times, and must score 1 each time.

    For example:

        assay bench check examples/bench/tasks/fix-bookings --tries 5

    Args:
        task: Folder of a prepared task.
        options: Options of the check.
        timeout: Time limit of each grading, in seconds.
        base_image: Replace a FROM image by a local one: NAME=LOCAL. May be repeated.
        allow: Data outside its folder that the task may read.
        show: Output options.
    """
    from assay.bench.regrade import bench_check

    if options.get("sandbox") == "none":
        from assay.sandboxes.unprotected import UNPROTECTED

        print_warning(UNPROTECTED)
    with show_spinner(show, "checking"):
        checks = bench_check(
            task,
            timeout_s=timeout,
            base_images=parse_base_images(base_image),
            allowed=allow.allowed,
            **options,
        )
    passed = all(result.passed for result in checks)
    if show.json:
        print_json(
            {
                "task": str(task),
                "passed": passed,
                "checks": [
                    {"name": result.name, "passed": result.passed, "detail": result.detail}
                    for result in checks
                ],
            }
        )
    else:
        for result in checks:
            if not (show.quiet and result.passed):
                print_line(f"{'✓' if result.passed else '✗'} {result.name}: {result.detail}")
    return 0 if passed else FAILED


def _print_created(folder: Path, next_command: str, show: OutputOptions) -> None:
    if show.json:
        print_json({"folder": str(folder)})
        return
    print_line(str(folder))
    if not show.quiet:
        print_line(f"Next: {next_command}")


def _parse_rubric(text: str) -> tuple[str, str]:
    name, equals, criterion = text.partition("=")
    if not (name and equals and criterion):
        raise UsageError(f"--rubric {text!r} is not allowed; give ID=TEXT")
    return name, criterion


agents = App(
    name="agents",
    help="""List the coding agents that a benchmark can use, or install one.

For example:

    assay bench agents
    assay bench agents install codex
""",
    help_format="plaintext",
)


@agents.default
def list_agents(*, show: OutputOptions = OutputOptions()) -> int:
    """List the coding agents that a benchmark can use.

    For example:

        assay bench agents

    Args:
        show: Output options.
    """
    from assay.api.bench import bench_agents

    listed = bench_agents()
    if show.json:
        print_json({name: agent._asdict() for name, agent in listed.items()})
        return 0
    width = max(map(len, listed))
    for name, agent in listed.items():
        notes = [agent.about]
        if agent.version:
            notes.append(f"{agent.version} is installed")
        elif not agent.installed:
            notes.append(f"not installed: assay bench agents install {name}")
        if agent.default:
            notes.append("default")
        print_wrapped(f"{name:<{width}}  {'; '.join(notes)}", indent=width + 2)
    return 0


@agents.command(name="install")
def install(agent: str, /, *, show: OutputOptions = OutputOptions()) -> int:
    """Install a coding agent in the cache folder, for use in all sandboxes.

    An installed version is replaced. Agents are never installed during a trial.

    For example:

        assay bench agents install codex@0.166.0

    Args:
        agent: Agent name, or NAME@VERSION; the default version is the latest.
        show: Output options.
    """
    from assay.api.bench import bench_install_agent

    name, _, version = agent.partition("@")
    if not (show.quiet or show.json):
        print_note(f"installing {agent}; this can take minutes")
    began = time.monotonic()
    installed = bench_install_agent(name, version or None)
    if show.json:
        print_json({**asdict(installed), "folder": str(installed.folder)})
    elif not show.quiet:
        print_line(f"{installed.name} {installed.version} is installed, in {installed.folder}")
        print_line(f"sha256 {installed.sha256}, {time.monotonic() - began:.0f} s")
    return 0
