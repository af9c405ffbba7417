"""Files from anywhere, and the sessions in them, whatever program wrote them.

The format is told by what is in a file, not by its name. A file is never read beyond a
bound, and what is damaged is named while the rest goes on. Nothing is written here.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from assay.errors import UsageError
from assay.exchange.formats import (
    EPISODE_FILE,
    FORMAT,
    InspectLog,
    Trace,
    is_atif,
    is_balrog,
    is_inspect,
    load_object,
    open_archive,
    parse_trace,
    read_atif,
    read_balrog,
)
from assay.exchange.formats.atif_read import trajectory_id
from assay.exchange.formats.foreign import as_mapping
from assay.exchange.formats.harbor import HarborTrial
from assay.exchange.formats.harbor_files import TRIAL_FILES, TrialFiles, is_trial, trial_of
from assay.exchange.formats.inspect_scores import unread_scores
from assay.exchange.trace_folder import INDEX, read_index

__all__ = [
    "MAX_TRACE",
    "DamagedSource",
    "Found",
    "SkippedSource",
    "TraceSource",
    "read_sources",
    "trace_files",
]

MAX_TRACE: Final = 256 << 20
"""A session may have this many bytes as JSON."""

_SUFFIXES: Final = (".json", ".jsonl")
_ARCHIVE: Final = b"PK\3\4"
# What other programs write beside their traces.
_NO_TRACES: Final = ("summary.json", "eval-set.json", "logs.json", "listing.json")
_TRAJECTORY: Final = "trajectory.json"
_LOG_NAMES: Final = (
    EPISODE_FILE,
    re.compile(r".+\.eval"),
    # Inspect names a log by the time, the task and an id.
    re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[+-]\d\d-\d\d_.+\.json"),
)
_NO_SAMPLES: Final = "is a log of Inspect without samples"


class DamagedSource(NamedTuple):
    """Something that could not be imported."""

    where: str
    """The file, and the line of JSON Lines or the sample of a log."""
    reason: str


class SkippedSource(NamedTuple):
    """Something that is no session, or not yet."""

    where: str
    reason: str


class Found(NamedTuple):
    """A session that was found."""

    where: str
    trace: Trace
    size: int
    """Of what it was read from, in bytes."""
    earlier: Sequence[str] = ()
    """The ids that an earlier assay gave to parts of it, if it did not know the whole."""


Read = Found | DamagedSource | SkippedSource
"""What comes of a piece of a file."""


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A file or the folder of a trial to import, or why there is none."""

    path: Path
    problem: str | None = None


def trace_files(paths: Sequence[Path]) -> list[TraceSource]:
    """The files that paths stand for: a file itself, of a folder what its index lists.

    A folder without an index stands for all files in it that end in .json or .jsonl, and
    for the logs of other programs in it and in the folders below.

    Raises:
        UsageError: A path does not exist.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file or folder {str(path)!r} to import")
    return [*dict.fromkeys(source for path in paths for source in _sources(path))]


def read_sources(
    files: Iterable[TraceSource], on_file: Callable[[int], None]
) -> Iterator[Read]:
    """The sessions of files; `on_file` is told how many files are done."""
    for done, source in enumerate(files, start=1):
        if source.problem is not None:
            yield DamagedSource(str(source.path), source.problem)
        else:
            yield from _read(source.path)
        on_file(done)


def _sources(path: Path) -> Iterator[TraceSource]:
    if not path.is_dir():
        trial = trial_of(path)
        yield TraceSource(trial or path, None if path.is_file() else "is not a regular file")
        return
    try:
        index = read_index(path)
    except UsageError:
        yield TraceSource(path / INDEX, "is not an index of traces")
        index = None
    if index is not None:
        yield from (_source(path / item.file) for item in index.files)
        return
    below = sorted(_below(path))
    here = {each for each in path.iterdir() if each.suffix in _SUFFIXES}
    names = sorted(each for each in here.difference(below) if _may_be_trace(each.name, below))
    if not names and not below:
        yield TraceSource(path, "holds no traces: there is no .json or .jsonl file in it")
    yield from map(_source, (*names, *below))


def _source(path: Path) -> TraceSource:
    """A file or a folder, unless to read it would wait for somebody, or never end."""
    is_special = path.exists() and not (path.is_file() or path.is_dir())
    return TraceSource(path, "is not a regular file" if is_special else None)


def _below(folder: Path) -> Iterator[Path]:
    """The logs of other programs in a folder and below it, which their names tell."""
    for root, folders, names in os.walk(folder):
        if is_trial(Path(root), names):
            folders.clear()
            yield Path(root)
            continue
        for name in names:
            if name == _TRAJECTORY or any(form.fullmatch(name) for form in _LOG_NAMES):
                yield Path(root, name)


def _may_be_trace(name: str, below: Sequence[Path]) -> bool:
    if name == INDEX or name.startswith("multi_model_results_"):
        return False
    if name in _NO_TRACES or name.endswith("_summary.json"):
        return False
    return not (below and name in TRIAL_FILES)


def _read(path: Path) -> Iterator[Read]:
    if path.is_dir():
        yield from _read_trial(path)
        return
    try:
        with path.open("rb") as stream:
            if path.suffix == ".jsonl":
                yield from _read_lines(path, stream)
                return
            start = stream.read(len(_ARCHIVE))
            if start != _ARCHIVE and path.suffix != ".eval":
                content = start + stream.read(MAX_TRACE + 1 - len(start))
                yield from _parsed(str(path), content, path)
                return
        yield from _read_log(path)
    except OSError as error:
        yield DamagedSource(str(path), f"cannot be read: {error.strerror}")


def _read_lines(path: Path, stream: IO[bytes]) -> Iterator[Read]:
    number = 0
    while line := stream.readline(MAX_TRACE + 1):
        number += 1
        if line.strip():
            yield from _parsed(f"{path}, line {number}", line, None)
        while len(line) > MAX_TRACE and not line.endswith(b"\n"):
            line = stream.readline(MAX_TRACE + 1)


def _parsed(where: str, content: bytes, path: Path | None) -> Iterator[Read]:
    if len(content) > MAX_TRACE:
        limit = f"{MAX_TRACE >> 20} MB, the most a trace may have"
        yield DamagedSource(where, f"is larger than {limit}")
        return
    size = len(content)
    if FORMAT.encode() in content[:200]:
        yield _tried(where, size, lambda: parse_trace(content))
        return
    try:
        value = load_object(content)
        log = InspectLog(value) if is_inspect(value) else None
    except UsageError as error:
        yield DamagedSource(where, str(error))
        return
    if log is not None:
        yield from _samples(where, log, value, size)
    elif is_atif(value):
        yield _tried(where, size, lambda: read_atif(value))
    elif is_balrog(value) and path is not None:
        yield _tried(where, size, lambda: _episode(value, path))
    else:
        yield _tried(where, size, lambda: parse_trace(content))


def _tried(where: str, size: int, make: Callable[[], Trace]) -> Read:
    try:
        return Found(where, make(), size)
    except UsageError as error:
        return DamagedSource(where, str(error))
    except (ValueError, RecursionError, OverflowError) as error:
        return DamagedSource(where, f"holds a value that no trace may hold: {error}")


def _samples(
    where: str, log: InspectLog, value: Mapping[str, Any], size: int
) -> Iterator[Read]:
    samples = value.get("samples")
    if not isinstance(samples, list) or not samples:
        yield SkippedSource(where, _NO_SAMPLES)
        return
    for number, sample in enumerate(samples):
        found = sample if isinstance(sample, dict) else {}
        place = f"{where}, sample {number + 1}"
        yield _tried(place, size // len(samples), lambda found=found: log.session(found))  # type: ignore[misc]
        yield from _left_out(place, found)


def _read_log(path: Path) -> Iterator[Read]:
    try:
        with open_archive(path, MAX_TRACE) as archive:
            # A log that was not finished has no header yet, but the start of its journal.
            start = "header.json" if "header.json" in archive.names else "_journal/start.json"
            log = InspectLog(load_object(archive.read(start)))
            names = [each for each in archive.names if each.startswith("samples/")]
            if not names:
                yield SkippedSource(str(path), _NO_SAMPLES)
            for name in names:
                yield from _sample(f"{path}, {name}", log, lambda name=name: archive.read(name))  # type: ignore[misc]
    except UsageError as error:
        yield DamagedSource(str(path), str(error))


def _sample(where: str, log: InspectLog, read: Callable[[], bytes]) -> Iterator[Read]:
    try:
        content = read()
        value = load_object(content)
    except UsageError as error:
        yield DamagedSource(where, str(error))
        return
    yield _tried(where, len(content), lambda: log.session(value))
    yield from _left_out(where, value)


def _left_out(where: str, sample: Mapping[str, Any]) -> Iterator[SkippedSource]:
    for name in unread_scores(as_mapping(sample.get("scores"))):
        yield SkippedSource(where, f"the score {name!r} is no number")


def _episode(value: Mapping[str, Any], path: Path) -> Trace:
    steps, beside = None, path.with_suffix(".csv")
    if beside.is_file():
        with beside.open("rb") as stream:
            steps = stream.read(MAX_TRACE + 1)
        if len(steps) > MAX_TRACE:
            raise UsageError(f"the CSV file of its steps is larger than {MAX_TRACE >> 20} MB")
    return read_balrog(value, steps, path.absolute(), path.stat().st_mtime)


def _read_trial(folder: Path) -> Iterator[Read]:
    """A trial of Harbor, and what lies beside its trajectories and is none."""
    files = TrialFiles(folder, MAX_TRACE)
    try:
        result = files.result()
    except UsageError as error:
        yield DamagedSource(str(files.result_path), str(error))
        return
    if result is None:
        yield SkippedSource(
            str(folder), "the trial has no result.json yet; import again when it has ended"
        )
        return
    trajectories = files.trajectories()
    found = _tried(str(folder), files.size, lambda: HarborTrial(result, trajectories).session())
    if isinstance(found, Found):
        found = found._replace(earlier=[*map(trajectory_id, trajectories)])
    yield found
    yield from (DamagedSource(str(path), reason) for path, reason in files.damaged)
    yield from (SkippedSource(str(path), reason) for path, reason in files.skipped)
