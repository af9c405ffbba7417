"""Summaries, comparisons, tags and imports of benchmark rollouts, and their coding agents."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.bench.coders.agents import AGENTS
from assay.bench.coders.installation import (
    PROGRAMS,
    InstalledAgent,
    choose_default_agent,
    find_installed_agent,
    install_agent,
)
from assay.bench.options import BenchSummaryOptions, RolloutComparisonOptions
from assay.core.options import takes_options
from assay.errors import OutputError, UsageError
from assay.store.opening import Where

if TYPE_CHECKING:
    from assay.bench.rollout_comparison import RolloutComparison
    from assay.bench.rollout_imports import RolloutImports
    from assay.bench.rollouts import Rollout
    from assay.bench.summary import BenchmarkSummary

_DATA_DIR = "data"


@takes_options
def bench_summary(
    benchmark: str,
    *rollouts: str,
    latest: bool = False,
    data_dir: Path | str = _DATA_DIR,
    options: BenchSummaryOptions,
    save: bool = False,
    notice: Callable[[str], None] = lambda _: None,
) -> "BenchmarkSummary":
    """Summarise a benchmark by arm and task.

    assay.bench_summary("my_benchmark").arms[0].score

    Args:
        benchmark: Its name, `name@stamp`, the start of a stamp, a tag, or a path.
        *rollouts: Stamps of its rollouts, or the starts of them; several are summarised
            together. Default: the latest.
        latest: Use the latest rollout.
        data_dir: Folder of the benchmarks.
        options: Options of the summary.
        save: Also write `summary.md` into the folder of the rollout, if all tasks count.
        notice: Callback for a message if that file could not be written.

    Raises:
        UsageError: The rollout does not exist, or is damaged.
    """
    from assay.bench.rollouts import find_rollout
    from assay.bench.summary import summarize_benchmark

    stamps = rollouts or (None,)
    selected = [
        find_rollout(benchmark, Path(data_dir), latest=latest, stamp=stamp) for stamp in stamps
    ]
    _check_distinct([rollout.path for rollout in selected])
    summary = summarize_benchmark(*(rollout.manifest for rollout in selected), options=options)
    if save and len(selected) == 1 and options.grading is None:
        from assay.report.benchmark import benchmark_document
        from assay.report.files import write_document

        try:
            write_document(benchmark_document(summary), selected[0].path / "summary.md")
        except OutputError as error:
            notice(str(error))
    return summary


@takes_options
def bench_compare(
    *rollouts: str, data_dir: Path | str = _DATA_DIR, options: RolloutComparisonOptions
) -> "RolloutComparison":
    """Compare rollouts of benchmarks by task and arm.

    assay.bench_compare("v1", "my_benchmark").changes(TaskChange.NEWLY_FAILING)

    Args:
        *rollouts: Two or more: names, `name@stamp`, starts of stamps, tags or paths. The
            first is the baseline.
        data_dir: Folder of the benchmarks.
        options: Options of the comparison.

    Raises:
        UsageError: A rollout does not exist, or is named twice.
    """
    from assay.bench.rollout_comparison import compare_rollouts
    from assay.bench.rollouts import find_rollout

    selected = [find_rollout(text, Path(data_dir)) for text in rollouts]
    _check_distinct([rollout.path for rollout in selected])
    is_one_benchmark = len({rollout.manifest.name for rollout in selected}) == 1
    named = {}
    for text, rollout in zip(rollouts, selected, strict=True):
        stamp = rollout.manifest.created_at if is_one_benchmark else rollout.label
        label = text if text in rollout.manifest.tags else stamp
        # Rollouts of two machines may have the same stamp.
        named[label if label not in named else str(rollout.path)] = rollout.manifest
    return compare_rollouts(named, options=options)


def bench_tag(
    rollout: str, tag: str, *, data_dir: Path | str = _DATA_DIR, remove: bool = False
) -> "Rollout":
    """Add a tag to a rollout, or remove it.

    Args:
        rollout: A name (its latest rollout), `name@stamp`, another tag of it, or a path.
        tag: The tag, unique within the data folder.
        data_dir: Folder of the benchmarks.
        remove: Remove the tag.

    Raises:
        UsageError: The tag is invalid or used by another rollout, or cannot be removed because
            this rollout does not have it.
    """
    from assay.bench.rollouts import find_rollout, tag_rollout

    folder = Path(data_dir)
    return tag_rollout(find_rollout(rollout, folder), tag, folder, remove=remove)


def bench_import(
    *folders: Path | str, data_dir: Path | str = _DATA_DIR, database: Where = None
) -> "RolloutImports":
    """Copy rollouts from other machines into a data folder, with their run folders.

    Existing files are kept. A damaged or incomplete rollout is rejected and reported. The
    sessions of a rollout are not stored: `assay traces import` imports traces. A Harbor job
    becomes a rollout, and its trials become sessions in the database.

    Args:
        *folders: Rollout folders, folders above them (such as another data folder), or folders
            of Harbor jobs.
        data_dir: Destination folder.
        database: DuckDB file for the trials of Harbor jobs.

    Raises:
        UsageError: A folder contains no rollout.
        OutputError: A file cannot be written.
    """
    from assay.api.traces import import_traces
    from assay.bench.rollout_imports import find_harbor_jobs, import_rollouts

    if not folders:
        raise UsageError("give one or more rollout folders, or a data folder")
    selected = import_rollouts([Path(folder) for folder in folders], Path(data_dir))
    jobs = [done.source for done in selected.imported if find_harbor_jobs(done.source)]
    if not jobs:
        return selected
    return selected._replace(sessions=import_traces(*jobs, database=database).added)


def _check_distinct(paths: list[Path]) -> None:
    resolved = [path.resolve() for path in paths]
    for path in resolved:
        if resolved.count(path) > 1:
            raise UsageError(
                f"{path.parent.name}@{path.name} is given twice; give each rollout once"
            )


class ListedAgent(NamedTuple):
    """A coding agent in a list."""

    about: str
    default: bool
    """Whether it is used for tasks that name no agent."""
    version: str | None
    """Installed version of a third-party program; None for others."""
    sha256: str | None
    installed: bool


def bench_agents() -> dict[str, ListedAgent]:
    """Return the coding agents that a benchmark can use, by name."""
    default = choose_default_agent()
    listed = {}
    for name, about in AGENTS.items():
        agent = find_installed_agent(name) if name in PROGRAMS else None
        listed[name] = ListedAgent(
            about=about,
            default=name == default,
            version=None if agent is None else agent.version,
            sha256=None if agent is None else agent.sha256,
            installed=name not in PROGRAMS or agent is not None,
        )
    return listed


def bench_install_agent(name: str, version: str | None = None) -> InstalledAgent:
    """Install a coding agent in the cache folder, replacing another version.

    Args:
        name: Name of the agent.
        version: Version; default: the latest.
    """
    return install_agent(name, version)
