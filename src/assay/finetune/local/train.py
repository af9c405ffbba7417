"""Training of a base model on rows of conversations; the result is written to a folder.

Only answers are trained. The order of rows and the initial weights depend on the seed. On one
thread, equal rows, settings, seed and versions give identical weights. With more threads, sums
are computed in another order, and losses agree to about 1 in 1,000.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch

from assay.core.canonical_json import canonical_json
from assay.core.provenance import collect_provenance
from assay.errors import TrainingStopped, UsageError
from assay.finetune.datasets.formats import RowContent
from assay.finetune.local.bases import Base, base_named
from assay.finetune.local.batches import Batch, Learned, batches_of, learn, optimizers_of
from assay.finetune.local.checkpoints import StoredModel, TrainingState, remove_checkpoint
from assay.finetune.local.templates import (
    EncodedRow,
    Template,
    head_key,
    read_rows,
    trained_messages,
)

_WARM_UP: Final = 100
"""Warm-up steps of the learning rate; a tenth of all steps if that is fewer."""
_KEPT_S: Final = 60.0
"""Maximum seconds between checkpoints, even if few steps were made."""
_VALIDATED: Final = 512
"""Number of rows after which validation stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Training settings; None means the default of the base model."""

    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    max_steps: int | None = None
    """Ends training before the last epoch; 0 gives the untrained model."""
    threads: int = 1
    checkpoint_steps: int = 200
    """Maximum steps between checkpoints; if steps are slow, there are fewer in between."""

    def __post_init__(self) -> None:
        """Raise UsageError if a value is not allowed."""
        bounds = {"epochs": 1, "batch_size": 1, "max_steps": 0, "threads": 1}
        for name, least in {**bounds, "checkpoint_steps": 1}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} {value} is not allowed; give {least} or more")
        if self.learning_rate is not None and not 0 < self.learning_rate < 1:
            raise UsageError(
                f"learning_rate {self.learning_rate} is not allowed; give one between 0 and 1"
            )

    def filled(self, base: Base) -> "Settings":
        """Return the settings with the defaults of a base model filled in."""
        defaults = base.defaults
        return replace(
            self,
            epochs=self.epochs or defaults.epochs,
            batch_size=self.batch_size or defaults.batch_size,
            learning_rate=self.learning_rate or defaults.learning_rate,
        )


@dataclass(frozen=True, slots=True)
class StepDone:
    """Result of one training step."""

    step: int
    """Number of the step, counted from 1."""
    steps: int
    """Total number of steps."""
    epoch: int
    loss: float
    accuracy: float
    """Share of trained tokens that were predicted correctly."""
    learning_rate: float
    tokens: int
    """Tokens read in this step."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Validated:
    """Loss and accuracy on rows that are not trained on."""

    step: int
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Token counts over all rows."""

    total: int
    """Total, counting the head in every row."""
    head: int
    learned: int

    @property
    def share_without_head(self) -> float:
        """Share of tokens that do not belong to the head."""
        return 1 - self.head / self.total


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A trained model, with details of its training."""

    base: str
    folder: Path
    steps: int
    rows: int
    tokens: TokenCounts
    parameters: int
    """Number of trained parameters."""
    validated: tuple[Validated, ...] = ()
    """Before the first step, after each epoch, and at the end."""
    losses: tuple[float, ...] = field(default=(), repr=False)
    """Loss of each step since training began or resumed."""
    seconds: float = 0.0
    """Time since training began or resumed."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Inputs of a training run, without the weights."""

    base: Base
    settings: Settings
    seed: int
    words: tuple[str, ...]
    head: str | None
    rows: list[EncodedRow]
    validation: list[EncodedRow]
    tokens: TokenCounts
    per_epoch: int
    """Batches per epoch."""
    identity: str
    """Hash that must match for a checkpoint to be resumed."""

    @property
    def steps(self) -> int:
        most = self.settings.max_steps
        whole = self.per_epoch * (self.settings.epochs or 1)
        return whole if most is None else min(most, whole)

    def epoch(self, number: int) -> list[Batch]:
        return batches_of(self.rows, self.settings.batch_size or 1, f"{self.seed}/{number}")


def train(
    base: str,
    rows: Sequence[Any],
    settings: Settings,
    *,
    seed: int,
    folder: Path,
    validation_rows: Sequence[Any] = (),
    on_step: Callable[[StepDone | Validated], None] = lambda done: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainedModel:
    """Train a base model, or resume where an earlier call with the same arguments stopped.

    Args:
        base: Name of the base model.
        rows: Training rows in any format that `assay sft filter` writes.
        settings: Training settings.
        seed: Determines the initial weights and the order of rows.
        folder: Folder for the model, and for its checkpoint during training.
        validation_rows: Rows for the validation loss before, during and after training.
        on_step: Called after every step and every validation.
        should_stop: Called after every step; True stops the training.

    Raises:
        UsageError: Rows are invalid, or the folder belongs to another training run.
        TrainingStopped: `should_stop` returned True; a checkpoint was written.
    """
    prepared = _prepare(base_named(base), rows, validation_rows, settings, seed)
    with _threads(settings.threads):
        return _LocalTraining(prepared, folder, on_step, should_stop).run()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _prepare(
    base: Base,
    rows: Sequence[Any],
    validation_rows: Sequence[Any],
    settings: Settings,
    seed: int,
) -> _Prepared:
    read, validation = read_rows(rows), read_rows(validation_rows)
    if not read:
        raise UsageError("there are no rows to train on")
    settings = settings.filled(base)
    words = base.words(read)
    template = base.template(base.tokenizer(words))
    encoded = [_encoded(template, row, base, i) for i, row in enumerate(read, 1)]
    held = [_encoded(template, row, base, i) for i, row in enumerate(validation, 1)]
    # Threads and checkpoint frequency may change when training resumes.
    kept = replace(settings, threads=1, checkpoint_steps=1)
    identity = hashlib.sha256(canonical_json([base.name, asdict(kept), seed]))
    for row in [*rows, *validation_rows]:
        identity.update(canonical_json(row))
    head = template.head_tokens(read[0].messages, read[0].tools or []) * len(read)
    told = sum(len(row.prefix) + len(row.rest) for row in encoded)
    counts = TokenCounts(
        total=told + head if template.leaves_out_head else told,
        head=head,
        learned=sum(int(row.trained.sum()) for row in encoded),
    )
    key = _head_of(read + validation) if template.leaves_out_head else None
    return _Prepared(
        base=base,
        settings=settings,
        seed=seed,
        words=words,
        head=key,
        rows=encoded,
        validation=held,
        tokens=counts,
        per_epoch=len(batches_of(encoded, settings.batch_size or 1, "")),
        identity=identity.hexdigest(),
    )


def _head_of(rows: Sequence[RowContent]) -> str:
    heads = {head_key(row.messages, row.tools): i for i, row in enumerate(rows, 1)}
    if len(heads) > 1:
        raise UsageError(
            f"the rows have {len(heads)} different heads (system message and tools), such as "
            f"rows {' and '.join(map(str, sorted(heads.values())[:2]))}; local/tiny leaves the "
            "head out and learns one: take rows of one kind of run"
        )
    return next(iter(heads))


def _encoded(template: Template, row: RowContent, base: Base, number: int) -> EncodedRow:
    encoded = template.encode(row.messages, row.tools or [], trained_messages(row))
    length, most = len(encoded.prefix) + len(encoded.rest), base.defaults.context
    if length > most:
        raise UsageError(
            f"row {number} has {length:,} tokens; {base.name} takes up to {most:,}: make rows "
            "with a shorter --history or --view short"
        )
    return encoded


class _LocalTraining:
    def __init__(
        self,
        prepared: _Prepared,
        folder: Path,
        on_step: Callable[[StepDone | Validated], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self._prepared, self._folder = prepared, folder
        self._on_step, self._should_stop = on_step, should_stop
        generator = torch.Generator().manual_seed(prepared.seed)
        self._model = prepared.base.model(prepared.words, generator)
        trained = [
            (name, weight)
            for name, weight in self._model.named_parameters()
            if weight.requires_grad
        ]
        self._trained = dict(trained)
        self._optimizers = optimizers_of(self._trained, prepared.base.muon)
        self._validated: list[Validated] = []
        self._losses: list[float] = []
        self._kept_at = time.monotonic()
        self._step = 0
        resumed = TrainingState.read(folder)
        if resumed is not None:
            if resumed.identity != prepared.identity:
                raise UsageError(
                    f"{folder} has a checkpoint of another training (other rows, settings or "
                    "seed); remove it, or name another folder"
                )
            self._step = resumed.restore(self._trained, [each for each, _ in self._optimizers])
            self._validated = [Validated(*each) for each in resumed.validated]

    def run(self) -> TrainedModel:
        prepared, started = self._prepared, time.perf_counter()
        if self._step == 0:
            self._validate()
        epoch, batches = -1, list[Batch]()
        while self._step < prepared.steps:
            number, place = divmod(self._step, prepared.per_epoch)
            if number != epoch:
                epoch, batches = number, prepared.epoch(number)
            self._one(batches[place], epoch)
            if place == prepared.per_epoch - 1 or self._step == prepared.steps:
                self._validate()
            if self._step < prepared.steps:
                self._keep()
        return self._finish(time.perf_counter() - started)

    def _one(self, batch: Batch, epoch: int) -> None:
        began, prepared = time.perf_counter(), self._prepared
        rate = self._rate()
        for optimizer, times in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = times * rate
            optimizer.zero_grad()
        learned = learn(self._model, batch)
        loss = learned.losses.mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self._trained.values()), 1.0)
        for optimizer, _ in self._optimizers:
            optimizer.step()
        self._step += 1
        self._losses.append(loss.item())
        self._on_step(
            StepDone(
                step=self._step,
                steps=prepared.steps,
                epoch=epoch + 1,
                loss=self._losses[-1],
                accuracy=learned.right.float().mean().item(),
                learning_rate=rate,
                tokens=learned.tokens,
                seconds=time.perf_counter() - began,
            )
        )

    def _rate(self) -> float:
        """Return the learning rate: linear warm-up, then linear decay."""
        steps = self._prepared.steps
        warm_up = min(_WARM_UP, math.ceil(steps / 10))
        full = self._prepared.settings.learning_rate or 0.0
        return full * min((self._step + 1) / warm_up, 1 - self._step / steps)

    def _validate(self) -> None:
        rows = self._prepared.validation
        if not rows:
            return
        batches = batches_of(rows, self._prepared.settings.batch_size or 1, "validation")
        done: list[Learned] = []
        count = 0
        with torch.no_grad():
            for batch in batches:
                done.append(learn(self._model, batch))
                count += sum(map(len, batch))
                if count >= _VALIDATED:
                    break
        losses = torch.cat([each.losses for each in done])
        right = torch.cat([each.right for each in done])
        validated = Validated(self._step, losses.mean().item(), right.float().mean().item())
        self._validated.append(validated)
        self._on_step(validated)

    def _keep(self) -> None:
        stopping = self._should_stop()
        late = time.monotonic() - self._kept_at >= _KEPT_S
        if stopping or late or self._step % self._prepared.settings.checkpoint_steps == 0:
            self._kept_at = time.monotonic()
            TrainingState.write(
                self._folder,
                self._prepared.identity,
                self._step,
                self._validated_values(),
                self._trained,
                [each for each, _ in self._optimizers],
            )
        if stopping:
            raise TrainingStopped(
                f"training was stopped after step {self._step} of {self._prepared.steps}; the "
                "same call resumes it"
            )

    def _validated_values(self) -> list[tuple[int, float, float]]:
        return [(each.step, each.loss, each.accuracy) for each in self._validated]

    def _finish(self, seconds: float) -> TrainedModel:
        prepared = self._prepared
        trained = TrainedModel(
            base=prepared.base.name,
            folder=self._folder,
            steps=self._step,
            rows=len(prepared.rows),
            tokens=prepared.tokens,
            parameters=sum(weight.numel() for weight in self._trained.values()),
            validated=tuple(self._validated),
            losses=tuple(self._losses),
            seconds=seconds,
        )
        StoredModel(
            base=prepared.base.name,
            words=prepared.words,
            head=prepared.head,
            about={
                "identity": prepared.identity,
                "settings": asdict(prepared.settings),
                "seed": prepared.seed,
                "steps": trained.steps,
                "rows": trained.rows,
                "tokens": asdict(trained.tokens),
                "validated": self._validated_values(),
                "provenance": {**collect_provenance().record(), "torch": torch.__version__},
            },
        ).write(self._folder, self._trained)
        remove_checkpoint(self._folder)
        return trained
