"""`python -m prove.bench`: a benchmark under load and under `kill -9`, counted.

First 25 and then 100 trials of the reference solution, eight at a time: how many a minute, how
much memory the runner takes, and what is left when it has ended. Then the runner is killed at
random moments and resumed: nothing that had ended may be lost or run again. Prints Markdown for
`docs/design/bench.md`; the exit code is 1 if anything was lost or left behind.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import duckdb

from assay.core.provenance import collect_provenance
from assay.core.text import counted

from .fault_parts.processes import read_output, start_assay, wait_for_exit
from .parts import markdown

__all__ = ["main"]

_TASK: Final = Path(__file__).parents[1] / "examples" / "bench" / "tasks" / "fix-bookings"
_NAME: Final = "proof"
_FEW, _MANY, _PARALLEL = 25, 100, 8
_KILLS, _KILLED_TRIALS = 20, 30
_LATEST_S: Final = 6.0
"""Seconds in which a run is killed: every third time after its start, else after its first
trial has begun."""
_PATIENCE_S: Final = 900.0
_SEED: Final = 18


class Load(NamedTuple):
    """A benchmark that ran undisturbed."""

    trials: int
    seconds: float
    peak_mb: float
    """Peak memory of the runner, without its sandboxes."""
    wrong: list[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code is 1 if something was lost or left behind."""
    parser = argparse.ArgumentParser(prog="python -m prove.bench", description=__doc__)
    parser.add_argument("--seed", type=int, default=_SEED, help=f"of the moments ({_SEED})")
    parser.add_argument("--kills", type=int, default=_KILLS, help=f"how many ({_KILLS})")
    parser.add_argument("--part", choices=("load", "kills"), help="only this (both)")
    parser.add_argument(
        "--trials", type=int, default=_MANY, help=f"of the longer benchmark ({_MANY})"
    )
    asked = parser.parse_args(arguments)
    started = time.perf_counter()
    wrong: list[str] = []
    with TemporaryDirectory(prefix="assay-prove-bench-") as folder:
        if asked.part != "kills":
            wrong += _measure_load(Path(folder), asked.trials)
        if asked.part != "load":
            wrong += _kill_runs(Path(folder) / "kills", asked.kills, random.Random(asked.seed))
    print(
        f"\n{time.perf_counter() - started:,.0f} s, seed {asked.seed}, {collect_provenance()}"
    )
    print(*(f"WRONG {words}" for words in wrong), sep="\n")
    return 1 if wrong else 0


def _measure_load(folder: Path, trials: int) -> list[str]:
    """Run few and many trials, and print time and memory; return the problems."""
    loads = [
        _run_under_load(folder / f"load-{number}", number)
        for number in (min(_FEW, trials), trials)
    ]
    rows = [
        [
            f"{load.trials}",
            f"{load.seconds:.0f} s",
            f"{60 * load.trials / load.seconds:.0f}",
            f"{load.peak_mb:.0f} MB",
        ]
        for load in loads
    ]
    head = [f"trials, {_PARALLEL} at a time", "time", "a minute", "the runner's memory"]
    print(markdown(head, rows))
    ratio = loads[1].peak_mb / loads[0].peak_mb
    print(f"\nmemory: {ratio:.2f} times that of fewer trials", flush=True)
    return [words for load in loads for words in load.wrong]


def _kill_runs(folder: Path, kill_count: int, chance: random.Random) -> list[str]:
    """Kill runs, resume them, and print the counts; return the problems."""
    kills = _KillTest(folder, chance)
    kills.run(kill_count)
    print(
        f"\n{kills.count} kills, {kills.alive} while running, in {kills.runs} benchmarks "
        f"of {_KILLED_TRIALS} trials; {kills.settled} ends of agents and trials were "
        f"recorded before the last kill; {len(kills.wrong)} problems (lost, repeated or left "
        f"behind), {counted(kills.graded_again, 'trial')} graded twice"
    )
    return kills.wrong


def _run_under_load(folder: Path, trials: int) -> Load:
    """Run many trials, and measure time, memory and leftovers."""
    _write_benchmark(folder, trials, _PARALLEL)
    began = time.monotonic()
    process = start_assay(folder, "bench", "run", "proof.toml", "--quiet")
    peak = 0.0
    while process.poll() is None and time.monotonic() - began < _PATIENCE_S:
        peak = max(peak, _read_peak_mb(process.pid))
        time.sleep(0.05)
    code = wait_for_exit(process)
    seconds = time.monotonic() - began
    wrong = [] if code == 0 else [f"exit code {code}: {read_output(folder)[-500:]}"]
    wrong += _describe_wrong_end(folder, trials)
    wrong += [f"left behind: {what}" for what in _find_leftovers(folder, process.pid)]
    print(f"{trials} trials: {seconds:.0f} s", file=sys.stderr, flush=True)
    return Load(trials, seconds, peak, wrong)


class _KillTest:
    """Kills runs at random moments, and resumes them."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.wrong: list[str] = []
        self.count = self.alive = self.runs = self.settled = 0
        self.graded_again = 0
        """Trials that were killed between their result and the end of their journal."""
        self._folder, self._chance = folder, chance

    def run(self, kills: int) -> None:
        """Kill this many times; a finished benchmark is followed by the next."""
        while self.count < kills:
            self.runs += 1
            self._kill_benchmark(self._folder / f"run-{self.runs}", kills)

    def _kill_benchmark(self, folder: Path, kills: int) -> None:
        _write_benchmark(folder, _KILLED_TRIALS, 4)
        before: dict[str, bytes] = {}
        pids = []
        while self.count < kills:
            process = start_assay(folder, "bench", "run", "proof.toml", "--quiet")
            pids.append(process.pid)
            if self.count % 3:
                _wait_until_working(folder, process)
            time.sleep(self._chance.uniform(0.0, _LATEST_S))
            self.alive += process.poll() is None
            process.kill()
            process.wait()
            self.count += 1
            before = self._compare_ends(folder, before)
            print(f"kill {self.count}: {len(before)} ends", file=sys.stderr, flush=True)
            if _is_finished(folder):
                break
        self.settled += len(before)
        if not _is_finished(folder):
            process = start_assay(folder, "bench", "run", "proof.toml", "--quiet")
            pids.append(process.pid)
            code = wait_for_exit(process, _PATIENCE_S)
            if code != 0:
                self.wrong.append(f"exit code {code} on resume: {read_output(folder)[-500:]}")
        self._compare_ends(folder, before)
        self.wrong += _describe_wrong_end(folder, _KILLED_TRIALS)
        self.wrong += [f"left: {what}" for pid in pids for what in _find_leftovers(folder, pid)]

    def _compare_ends(self, folder: Path, before: dict[str, bytes]) -> dict[str, bytes]:
        after = dict(_read_ends(folder))
        for name, said in before.items():
            if name not in after:
                self.wrong.append(f"{name} is lost")
            elif after[name] != said and _lasting_fields(after[name]) == _lasting_fields(said):
                self.graded_again += 1
            elif after[name] != said:
                self.wrong.append(f"{name} was run again")
        return after


def _wait_until_working(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a run that was just started works on a trial."""
    began = time.time()
    while process.poll() is None and time.time() - began < _PATIENCE_S:
        if any(path.stat().st_mtime > began for path in (folder / "data" / "runs").glob("2*")):
            return
        time.sleep(0.02)


def _write_benchmark(folder: Path, trials: int, parallel: int) -> None:
    folder.mkdir(parents=True)
    shutil.copytree(_TASK, folder / "task")
    (folder / "proof.toml").write_text(
        f'name = "{_NAME}"\nparallel = {parallel}\n\n[[tasks]]\nprepared_dir = "task"\n'
        f'agent = "oracle"\nrollouts = {trials}\n',
        "utf-8",
    )


def _read_ends(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every recorded end of an agent, or of a trial with a score."""
    data = folder / "data"
    for path in (data / "runs").glob("*/agent.json"):
        yield f"agent of {path.parent.name}", path.read_bytes()
    for path in (data / "rollouts" / _NAME).glob("*/task_results/*.json"):
        if json.loads(path.read_bytes())["state"] == "result":
            yield f"trial {path.stem}", path.read_bytes()


def _lasting_fields(said: bytes) -> dict[str, Any]:
    """Return the fields that a second grading of the same patch does not change."""
    values: dict[str, Any] = json.loads(said)
    if isinstance(values.get("seconds"), dict):  # that of a trial, not of an agent
        del values["ended_at"], values["seconds"]["grading"]
    return values


def _read_manifests(folder: Path) -> list[dict[str, Any]]:
    found = sorted((folder / "data" / "rollouts" / _NAME).glob("*/manifest.json"))
    return [json.loads(path.read_text("utf-8")) for path in found]


def _is_finished(folder: Path) -> bool:
    return any(manifest["finished"] for manifest in _read_manifests(folder))


def _describe_wrong_end(folder: Path, trials: int) -> Iterator[str]:
    """Yield the problems of a finished benchmark."""
    manifests = _read_manifests(folder)
    if len(manifests) != 1:
        yield f"{len(manifests)} rollouts in place of one"
    for manifest in manifests:
        scores = [result["score"] for result in manifest["results"]]
        if scores != [1.0] * trials:
            yield f"{sum(score == 1.0 for score in scores)} of {trials} trials have their score"
    databases = [*folder.glob("*.duckdb")]
    if not databases:
        yield "the database is missing"
        return
    with duckdb.connect(str(databases[0]), read_only=True) as store:
        states = store.execute("SELECT state, count(*) FROM trials GROUP BY state").fetchall()
    if states != [("result", trials)]:
        yield f"the database has {states}"


def _find_leftovers(folder: Path, pid: int) -> Iterator[str]:
    """Yield processes, mounts, groups and folders that a runner left behind."""
    name = f"assay-*box-{pid}-*"
    yield from map(str, Path(tempfile.gettempdir()).glob(name))
    yield from map(str, Path("/sys/fs/cgroup").rglob(name))
    for unwanted in ("work", "grading"):
        yield from map(str, (folder / "data" / "runs").glob(f"*/{unwanted}"))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            session = int((process / "stat").read_text().rpartition(")")[2].split()[3])
            # The mounts of a sandbox come from the folder.
            mounted = str(folder) in (process / "mountinfo").read_text()
        except (OSError, ValueError):
            continue
        if session == pid or mounted:
            yield f"process {process.name}"


def _read_peak_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(found[0]) / 1024 if found else 0.0


if __name__ == "__main__":
    os.environ.pop("ASSAY_DATABASE", None)
    sys.exit(main())
