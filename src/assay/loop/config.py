"""All that can be chosen about a loop; the exam is fixed before anything is trained."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay._util.settings import Configuration, Counts, Setting
from assay._util.values import choice, flag, label, names, path, real, text, value_type, whole
from assay.errors import UsageError

__all__ = ["LoopConfig"]

_LAST_SEED: Final = 2**31 - 1


@value_type("a share such as 20%")
def _share(value: Any) -> str:
    number = str(value).strip().removesuffix("%")
    if not str(value).strip().endswith("%") or not 0 < float(number) < 100:
        raise ValueError
    return f"{float(number):g}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig(Configuration):
    """A loop. A value that is not allowed is a UsageError."""

    name: str = Setting("loop", label, at="loop", group="The loop").about(
        "What the loop is called in its report"
    )
    folder: Path = Setting("loop", path, Counts.NOTHING, at="loop").about(
        "Where data, figures and the report go"
    )
    database: Path | None = Setting(
        None, path, Counts.NOTHING, at="loop", without="traces.duckdb in the folder"
    ).about("The store for what is played")
    budget: float | None = Setting(
        None, real(0.000001, 1e9), Counts.NOTHING, at="loop", without="none"
    ).about("The most dollars that the whole loop may spend")

    difficulty: str = Setting(
        "classic", choice("easy", "medium", "hard", "classic"), at="play", group="The game"
    ).about("The rules of the worlds, in teaching and in the exam")
    view: str = Setting("short", choice("full", "short"), at="play").about(
        "How models see the world"
    )
    history: int = Setting(1, whole(1, 100), at="play").about("Turns that models see again")
    actions_per_turn: int = Setting(1, whole(1, 50), at="play").about(
        "The most actions in a turn"
    )
    step_limit: int = Setting(300, whole(1, 10**6), at="play").about(
        "The most environment steps in an episode"
    )
    max_turns: int = Setting(300, whole(1, 10**6), at="play").about(
        "The most turns (model calls) in an episode"
    )
    concurrent: int = Setting(16, whole(1, 1000), Counts.NOTHING, at="play").about(
        "Episodes at the same time"
    )

    teacher: str = Setting("builtin/expert", label, at="teacher.model", group="Teaching").about(
        "The model that plays what is learned"
    )
    teacher_worlds: int = Setting(80, whole(1, 10**6), at="teacher.worlds").about(
        "Worlds that it plays"
    )
    teacher_seed: int = Setting(100_000, whole(0, _LAST_SEED), at="teacher.seed").about(
        "The seed of the first of them; the next ones count up"
    )

    min_achievements: int | None = Setting(
        None, whole(1, 100), at="filter", group="The data", without="any"
    ).about("Only episodes with at least so many achievements")
    top: str | None = Setting(None, _share, at="filter", without="all").about(
        "Only the best share of each world's episodes"
    )
    drop_notes: bool = Setting(True, flag, at="filter").about(
        "Take the teacher's notes out of requests and replies"
    )
    holdout: str = Setting("10%", _share, at="filter").about(
        "The share of worlds whose rows are not trained on, to validate by"
    )

    relabel_rounds: int = Setting(
        0, whole(0, 100), at="relabel.rounds", group="Practice"
    ).about("How often a pupil plays and builtin/expert says what it would have done there")
    relabel_worlds: int = Setting(40, whole(1, 10**6), at="relabel.worlds").about(
        "Worlds that a pupil plays in a round; their seeds follow those of the teacher"
    )
    relabel_epochs: int = Setting(1, whole(1, 1000), at="relabel.epochs").about(
        "How often a pupil goes through the data before it plays"
    )
    relabel_temperature: float = Setting(0.7, real(0.0, 2.0), at="relabel.temperature").about(
        "How freely a pupil answers: the more freely, the more mistakes it is corrected for"
    )

    student: str = Setting("local/tiny", label, at="finetune.model", group="Training").about(
        "The model that is trained further"
    )
    backend: str = Setting("local", choice("openai", "synth", "local"), at="finetune").about(
        "Who trains it"
    )
    subset: int | None = Setting(None, whole(1, 10**9), at="finetune", without="all").about(
        "How many of the rows are trained on, drawn by the training seed"
    )
    epochs: int | None = Setting(
        None, whole(1, 1000), at="finetune", without="the model's own"
    ).about("How often the data is gone through")
    batch_size: int | None = Setting(
        None, whole(1, 4096), at="finetune", without="the model's own"
    ).about("Rows of a training step")
    learning_rate: float | None = Setting(
        None, real(1e-9, 1.0), at="finetune", without="the model's own"
    ).about("How far each step goes")
    training_seed: int = Setting(42, whole(0, _LAST_SEED), at="finetune.seed").about(
        "Of the first weights and the order of rows"
    )
    training_price: float | None = Setting(
        None,
        real(0.0, 1e6),
        Counts.NOTHING,
        at="finetune.price",
        without="the backend's own, where it is known",
    ).about("Dollars for a million trained tokens, as your provider lists them")
    suffix: str | None = Setting(None, text(64), at="finetune", without="none").about(
        "A part of the new model's name"
    )

    exam_worlds: int = Setting(50, whole(2, 10**6), at="exam.worlds", group="The exam").about(
        "Fresh worlds that all play"
    )
    exam_seed: int = Setting(900_000, whole(0, _LAST_SEED), at="exam.seed").about(
        "The seed of the first of them"
    )
    until_decided: bool = Setting(False, flag, at="exam").about(
        "End the exam as soon as it is known whether the student got better"
    )
    temperature: float = Setting(0.7, real(0.0, 2.0), at="exam").about(
        "How freely models answer in the exam; small ones go round in circles at 0"
    )
    max_tokens: int = Setting(128, whole(1, 10**6), at="exam").about(
        "The most tokens of a reply in the exam"
    )
    price: str | None = Setting(
        None, text(64), Counts.NOTHING, at="exam.price", without="none"
    ).about("The price of models without a known one: IN/OUT in dollars per million tokens")
    beside: tuple[str, ...] = Setting(("builtin/random",), names, at="exam.beside").about(
        "Models that sit the same exam, for comparison"
    )

    def complete(self) -> None:
        """Refuse an exam on worlds that were taught, and two teachers in one file."""
        if self.relabel_rounds and (
            self.teacher != "builtin/expert" or self.actions_per_turn > 1
        ):
            raise UsageError(
                f"with [relabel] rounds = {self.relabel_rounds}, builtin/expert answers for"
                f" pupils, one action in a turn; the teacher is {self.teacher}, with"
                f" actions_per_turn = {self.actions_per_turn}: take builtin/expert and 1, or"
                " rounds = 0"
            )
        taught = range(self.teacher_seed, self.practice_seed(self.relabel_rounds))
        asked = range(self.exam_seed, self.exam_seed + self.exam_worlds)
        if max(taught.start, asked.start) < min(taught.stop, asked.stop):
            raise UsageError(
                f"the exam's worlds, seeds {asked.start} to {asked.stop - 1}, are among those"
                f" that are taught, {taught.start} to {taught.stop - 1}; choose another seed in"
                " [exam] or [teacher]"
            )

    def practice_seed(self, number: int) -> int:
        """The first world of a round of practice, counted from 0."""
        return self.teacher_seed + self.teacher_worlds + number * self.relabel_worlds
