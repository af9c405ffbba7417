"""Settings of a training loop, and its stages, which run one after the other.

The exam is configured before anything is trained. A stage is not repeated if its inputs are
unchanged: its key is a hash of its settings and of the previous stage's key and result. A
log file next to the results lists the finished stages by key. It is replaced atomically,
so an interrupted loop resumes with the stage it was in.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.core.canonical_json import canonical_json, content_hash
from assay.core.files import atomic_write
from assay.core.settings import Configuration, Counts, Setting
from assay.core.values import choice, flag, label, names, path, real, text, value_type, whole
from assay.errors import AssayError, UsageError

_MAX_SEED: Final = 2**31 - 1


@value_type("a share such as 20%")
def _parse_share(value: Any) -> str:
    number = str(value).strip().removesuffix("%")
    if not str(value).strip().endswith("%") or not 0 < float(number) < 100:
        raise ValueError
    return f"{float(number):g}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig(Configuration):
    """Settings of a loop; an invalid value raises a UsageError."""

    name: str = Setting("loop", label, at="loop", group="Loop").about(
        "Name of the loop in its report"
    )
    folder: Path = Setting("loop", path, Counts.NOTHING, at="loop").about(
        "Folder for data, figures and the report"
    )
    database: Path | None = Setting(
        None, path, Counts.NOTHING, at="loop", without="traces.duckdb in the folder"
    ).about("Database for the episodes")
    budget: float | None = Setting(
        None, real(0.000001, 1e9), Counts.NOTHING, at="loop", without="none"
    ).about("Maximum cost of the whole loop in dollars")

    difficulty: str = Setting(
        "classic", choice("easy", "medium", "hard", "classic"), at="play", group="Environment"
    ).about("Rules of the worlds, in teaching and in the exam")
    view: str = Setting("short", choice("full", "short"), at="play").about(
        "Length of observations"
    )
    history: int = Setting(1, whole(1, 100), at="play").about(
        "Number of previous turns that models see"
    )
    actions_per_turn: int = Setting(1, whole(1, 50), at="play").about(
        "Maximum number of actions in a turn"
    )
    step_limit: int = Setting(300, whole(1, 10**6), at="play").about(
        "Maximum number of environment steps in an episode"
    )
    max_turns: int = Setting(300, whole(1, 10**6), at="play").about(
        "Maximum number of turns (model calls) in an episode"
    )
    concurrent: int = Setting(16, whole(1, 1000), Counts.NOTHING, at="play").about(
        "Number of episodes at the same time"
    )

    teacher: str = Setting("builtin/expert", label, at="teacher.model", group="Teacher").about(
        "Model whose episodes are the training data"
    )
    teacher_worlds: int = Setting(80, whole(1, 10**6), at="teacher.worlds").about(
        "Number of worlds that the teacher plays"
    )
    teacher_seed: int = Setting(100_000, whole(0, _MAX_SEED), at="teacher.seed").about(
        "Seed of the first teacher world; the others follow by 1"
    )

    min_achievements: int | None = Setting(
        None, whole(1, 100), at="filter", group="Data", without="any"
    ).about("Only episodes with at least this many achievements")
    top: str | None = Setting(None, _parse_share, at="filter", without="all").about(
        "Only this share of each world's episodes, the best ones"
    )
    drop_notes: bool = Setting(True, flag, at="filter").about(
        "Remove the teacher's notes from requests and replies"
    )
    holdout: str = Setting("10%", _parse_share, at="filter").about(
        "Share of worlds that are held out for validation"
    )

    relabel_rounds: int = Setting(
        0, whole(0, 100), at="relabel.rounds", group="Practice"
    ).about("Rounds in which a pupil plays and builtin/expert relabels its actions")
    relabel_worlds: int = Setting(40, whole(1, 10**6), at="relabel.worlds").about(
        "Worlds that a pupil plays per round; their seeds follow the teacher's seeds"
    )
    relabel_epochs: int = Setting(1, whole(1, 1000), at="relabel.epochs").about(
        "Training epochs of a pupil before it plays"
    )
    relabel_temperature: float = Setting(0.7, real(0.0, 2.0), at="relabel.temperature").about(
        "Sampling temperature of a pupil; the higher, the more mistakes are relabelled"
    )

    student: str = Setting("local/tiny", label, at="finetune.model", group="Training").about(
        "Model to fine-tune"
    )
    backend: str = Setting("local", choice("openai", "synth", "local"), at="finetune").about(
        "Service that trains it"
    )
    subset: int | None = Setting(None, whole(1, 10**9), at="finetune", without="all").about(
        "Number of rows to train on, sampled with the training seed"
    )
    epochs: int | None = Setting(
        None, whole(1, 1000), at="finetune", without="depends on the model"
    ).about("Number of passes over the data")
    batch_size: int | None = Setting(
        None, whole(1, 4096), at="finetune", without="depends on the model"
    ).about("Rows per training step")
    learning_rate: float | None = Setting(
        None, real(1e-9, 1.0), at="finetune", without="depends on the model"
    ).about("Learning rate")
    training_seed: int = Setting(42, whole(0, _MAX_SEED), at="finetune.seed").about(
        "Seed of the initial weights and the order of rows"
    )
    training_price: float | None = Setting(
        None,
        real(0.0, 1e6),
        Counts.NOTHING,
        at="finetune.price",
        without="the backend's price, if known",
    ).about("Price in dollars per million trained tokens, as listed by your provider")
    suffix: str | None = Setting(None, text(64), at="finetune", without="none").about(
        "Text added to the new model's name"
    )

    exam_worlds: int = Setting(50, whole(2, 10**6), at="exam.worlds", group="Exam").about(
        "Number of fresh worlds, played by all models"
    )
    exam_seed: int = Setting(900_000, whole(0, _MAX_SEED), at="exam.seed").about(
        "Seed of the first exam world"
    )
    until_decided: bool = Setting(False, flag, at="exam").about(
        "End the exam as soon as it shows whether the student improved"
    )
    temperature: float = Setting(0.7, real(0.0, 2.0), at="exam").about(
        "Sampling temperature in the exam; at 0 small models repeat themselves"
    )
    max_tokens: int = Setting(128, whole(1, 10**6), at="exam").about(
        "Maximum number of tokens in a reply in the exam"
    )
    price: str | None = Setting(
        None, text(64), Counts.NOTHING, at="exam.price", without="none"
    ).about("Price of models without a known price: IN/OUT in dollars per million tokens")
    beside: tuple[str, ...] = Setting(("builtin/random",), names, at="exam.beside").about(
        "Models that take the same exam, for comparison"
    )

    def complete(self) -> None:
        """Reject exam worlds that are also taught, and relabelling with another teacher."""
        if self.relabel_rounds and (
            self.teacher != "builtin/expert" or self.actions_per_turn > 1
        ):
            raise UsageError(
                f"[relabel] rounds = {self.relabel_rounds} needs the teacher builtin/expert and"
                f" actions_per_turn = 1; the teacher is {self.teacher}, with actions_per_turn ="
                f" {self.actions_per_turn}: change them, or set rounds = 0"
            )
        taught_seeds = range(self.teacher_seed, self.get_practice_seed(self.relabel_rounds))
        exam_seeds = range(self.exam_seed, self.exam_seed + self.exam_worlds)
        if max(taught_seeds.start, exam_seeds.start) < min(taught_seeds.stop, exam_seeds.stop):
            raise UsageError(
                f"the exam worlds, seeds {exam_seeds.start} to {exam_seeds.stop - 1}, overlap "
                f"with the training worlds, {taught_seeds.start} to {taught_seeds.stop - 1}; "
                "choose another seed in [exam] or [teacher]"
            )

    def get_practice_seed(self, number: int) -> int:
        """Return the first seed of a practice round, counted from 0."""
        return self.teacher_seed + self.teacher_worlds + number * self.relabel_worlds


_FORMAT: Final = "assay-loop/1"
Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a loop."""

    name: str
    about: str
    """Description shown while the stage runs."""
    settings: Mapping[str, Any]
    """Settings that determine its result, in addition to the earlier stages."""
    work: Callable[[str, Mapping[str, Result]], Result]
    """Called with the key and the earlier results; returns a result that JSON can represent."""
    is_available: Callable[[Result], bool] = lambda result: True
    """Whether the output of an earlier execution still exists."""


class StageResult(NamedTuple):
    """Result of a completed stage."""

    name: str
    key: str
    result: Result
    seconds: float
    at: float
    """End time, in seconds since 1970."""


class StageEvent(NamedTuple):
    """Start or end of a stage."""

    stage: Stage
    number: int
    """Position of the stage, counted from 1."""
    of: int
    done: StageResult | None = None
    """None when the stage begins."""
    kept: bool = False
    """Whether the result comes from an earlier execution."""


class StageLog:
    """File that records completed stages."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: dict[str, StageResult] = {}
        if path.exists():
            try:
                content = json.loads(path.read_bytes())
                if content["format"] != _FORMAT:
                    raise ValueError(f"its format is {content['format']!r}")
                self._done = {stage["key"]: StageResult(**stage) for stage in content["done"]}
            except (ValueError, KeyError, TypeError, OSError) as error:
                raise UsageError(
                    f"{path} is not a valid stage log: {error}; remove it to start again, or"
                    " name another folder"
                ) from error

    def find(self, key: str) -> StageResult | None:
        """Return the completed stage with this key, if any."""
        return self._done.get(key)

    def find_latest(self, stage: str) -> StageResult | None:
        """Return the most recent result of a stage, with any settings."""
        results = [done for done in self._done.values() if done.name == stage]
        return max(results, key=lambda done: done.at, default=None)

    def record(self, done: StageResult) -> None:
        """Record a completed stage."""
        self._done[done.key] = done
        content = {
            "format": _FORMAT,
            "done": [stage._asdict() for stage in self._done.values()],
        }
        atomic_write(self._path, canonical_json(content))


def run_stages(
    stages: Sequence[Stage], log: StageLog, listen: Callable[[StageEvent], None]
) -> dict[str, StageResult]:
    """Execute the stages that are not completed yet, in order.

    Raises:
        AssayError: A stage failed; a note names it. Calling again resumes with that stage.
    """
    results: dict[str, StageResult] = {}
    for number, (stage, key) in enumerate(_compute_keys(stages, results), 1):
        event = StageEvent(stage, number, len(stages))
        recorded = log.find(key)
        if recorded is not None and stage.is_available(recorded.result):
            results[stage.name] = recorded
            listen(event._replace(done=recorded, kept=True))
            continue
        listen(event)
        started = time.monotonic()
        try:
            result = stage.work(key, {name: done.result for name, done in results.items()})
        except AssayError as error:
            error.add_note(f"in stage {number} of {len(stages)}, {stage.name}")
            raise
        done = StageResult(stage.name, key, result, time.monotonic() - started, time.time())
        log.record(done)
        results[stage.name] = done
        listen(event._replace(done=done))
    return results


def find_completed_stages(stages: Sequence[Stage], log: StageLog) -> dict[str, StageResult]:
    """Return the leading stages that need not be executed again."""
    results: dict[str, StageResult] = {}
    for stage, key in _compute_keys(stages, results):
        recorded = log.find(key)
        if recorded is None or not stage.is_available(recorded.result):
            break
        results[stage.name] = recorded
    return results


def _compute_keys(
    stages: Sequence[Stage], results: Mapping[str, StageResult]
) -> Iterator[tuple[Stage, str]]:
    """Yield each stage with its key; a key depends on the result of the stage before."""
    before: Any = None
    for stage in stages:
        key = content_hash(canonical_json([_FORMAT, stage.name, stage.settings, before]))
        yield stage, key
        before = [key, results[stage.name].result]
