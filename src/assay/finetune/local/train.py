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
from assay.finetune.local.bases import Base, find_base
from assay.finetune.local.batches import (
    Batch,
    BatchLosses,
    compute_losses,
    make_batches,
    make_optimizers,
)
from assay.finetune.local.checkpoints import StoredModel, TrainingState, remove_checkpoint
from assay.finetune.local.templates import (
    EncodedRow,
    Template,
    flag_trained_messages,
    hash_head,
    read_rows,
)

_WARM_UP_STEPS: Final = 100
"""Warm-up steps of the learning rate; a tenth of all steps if that is fewer."""
_CHECKPOINT_S: Final = 60.0
"""Maximum seconds between checkpoints, even if few steps were made."""
_MAX_VALIDATION_ROWS: Final = 512
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

    def fill_defaults(self, base: Base) -> "Settings":
        """Return the settings with the defaults of a base model filled in."""
        defaults = base.defaults
        return replace(
            self,
            epochs=self.epochs or defaults.epochs,
            batch_size=self.batch_size or defaults.batch_size,
            learning_rate=self.learning_rate or defaults.learning_rate,
        )


@dataclass(frozen=True, slots=True)
class TrainingStep:
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
class ValidationResult:
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
    validated: tuple[ValidationResult, ...] = ()
    """Before the first step, after each epoch, and at the end."""
    losses: tuple[float, ...] = field(default=(), repr=False)
    """Loss of each step since training began or resumed."""
    seconds: float = 0.0
    """Time since training began or resumed."""


@dataclass(frozen=True, slots=True)
class _TrainingInputs:
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
        limit = self.settings.max_steps
        all_steps = self.per_epoch * (self.settings.epochs or 1)
        return all_steps if limit is None else min(limit, all_steps)

    def make_epoch(self, number: int) -> list[Batch]:
        return make_batches(self.rows, self.settings.batch_size or 1, f"{self.seed}/{number}")


def train(
    base: str,
    rows: Sequence[Any],
    settings: Settings,
    *,
    seed: int,
    folder: Path,
    validation_rows: Sequence[Any] = (),
    on_step: Callable[[TrainingStep | ValidationResult], None] = lambda done: None,
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
    prepared = _prepare(find_base(base), rows, validation_rows, settings, seed)
    with _use_threads(settings.threads):
        return _LocalTraining(prepared, folder, on_step, should_stop).run()


@contextmanager
def _use_threads(count: int) -> Iterator[None]:
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
) -> _TrainingInputs:
    contents, validation = read_rows(rows), read_rows(validation_rows)
    if not contents:
        raise UsageError("no rows to train on")
    settings = settings.fill_defaults(base)
    words = base.build_vocabulary(contents)
    template = base.make_template(base.make_tokenizer(words))
    encoded = [_encode_row(template, row, base, i) for i, row in enumerate(contents, 1)]
    validation_encoded = [
        _encode_row(template, row, base, i) for i, row in enumerate(validation, 1)
    ]
    # Threads and checkpoint frequency may change when training resumes.
    identifying = replace(settings, threads=1, checkpoint_steps=1)
    identity = hashlib.sha256(canonical_json([base.name, asdict(identifying), seed]))
    for row in [*rows, *validation_rows]:
        identity.update(canonical_json(row))
    head = template.count_head_tokens(contents[0].messages, contents[0].tools or []) * len(
        contents
    )
    token_count = sum(len(row.prefix) + len(row.rest) for row in encoded)
    counts = TokenCounts(
        total=token_count + head if template.omits_head else token_count,
        head=head,
        learned=sum(int(row.trained.sum()) for row in encoded),
    )
    key = _hash_common_head(contents + validation) if template.omits_head else None
    return _TrainingInputs(
        base=base,
        settings=settings,
        seed=seed,
        words=words,
        head=key,
        rows=encoded,
        validation=validation_encoded,
        tokens=counts,
        per_epoch=len(make_batches(encoded, settings.batch_size or 1, "")),
        identity=identity.hexdigest(),
    )


def _hash_common_head(rows: Sequence[RowContent]) -> str:
    heads = {hash_head(row.messages, row.tools): i for i, row in enumerate(rows, 1)}
    if len(heads) > 1:
        raise UsageError(
            f"the rows have {len(heads)} different heads (system message and tools), such as "
            f"rows {' and '.join(map(str, sorted(heads.values())[:2]))}; local/tiny "
            "supports a single head: use rows with the same system message and tools"
        )
    return next(iter(heads))


def _encode_row(template: Template, row: RowContent, base: Base, number: int) -> EncodedRow:
    encoded = template.encode(row.messages, row.tools or [], flag_trained_messages(row))
    length, limit = len(encoded.prefix) + len(encoded.rest), base.defaults.context
    if length > limit:
        raise UsageError(
            f"row {number} has {length:,} tokens; the limit of {base.name} is {limit:,}: make "
            "rows with a shorter --history or --view short"
        )
    return encoded


class _LocalTraining:
    def __init__(
        self,
        prepared: _TrainingInputs,
        folder: Path,
        on_step: Callable[[TrainingStep | ValidationResult], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self._prepared, self._folder = prepared, folder
        self._on_step, self._should_stop = on_step, should_stop
        generator = torch.Generator().manual_seed(prepared.seed)
        self._model = prepared.base.make_model(prepared.words, generator)
        trained = [
            (name, weight)
            for name, weight in self._model.named_parameters()
            if weight.requires_grad
        ]
        self._trained = dict(trained)
        self._optimizers = make_optimizers(self._trained, prepared.base.muon)
        self._validated: list[ValidationResult] = []
        self._losses: list[float] = []
        self._saved_at = time.monotonic()
        self._step = 0
        resumed = TrainingState.read(folder)
        if resumed is not None:
            if resumed.identity != prepared.identity:
                raise UsageError(
                    f"{folder} has a checkpoint of another training run (different rows, "
                    "settings or seed); remove it, or name another folder"
                )
            self._step = resumed.restore(
                self._trained, [optimizer for optimizer, _ in self._optimizers]
            )
            self._validated = [ValidationResult(*result) for result in resumed.validated]

    def run(self) -> TrainedModel:
        prepared, started = self._prepared, time.perf_counter()
        if self._step == 0:
            self._validate()
        epoch, batches = -1, list[Batch]()
        while self._step < prepared.steps:
            number, index = divmod(self._step, prepared.per_epoch)
            if number != epoch:
                epoch, batches = number, prepared.make_epoch(number)
            self._train_batch(batches[index], epoch)
            if index == prepared.per_epoch - 1 or self._step == prepared.steps:
                self._validate()
            if self._step < prepared.steps:
                self._save_if_due()
        return self._finish(time.perf_counter() - started)

    def _train_batch(self, batch: Batch, epoch: int) -> None:
        started, prepared = time.perf_counter(), self._prepared
        rate = self._compute_rate()
        for optimizer, factor in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = factor * rate
            optimizer.zero_grad()
        result = compute_losses(self._model, batch)
        loss = result.losses.mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self._trained.values()), 1.0)
        for optimizer, _ in self._optimizers:
            optimizer.step()
        self._step += 1
        self._losses.append(loss.item())
        self._on_step(
            TrainingStep(
                step=self._step,
                steps=prepared.steps,
                epoch=epoch + 1,
                loss=self._losses[-1],
                accuracy=result.correct.float().mean().item(),
                learning_rate=rate,
                tokens=result.tokens,
                seconds=time.perf_counter() - started,
            )
        )

    def _compute_rate(self) -> float:
        """Return the learning rate: linear warm-up, then linear decay."""
        steps = self._prepared.steps
        warm_up = min(_WARM_UP_STEPS, math.ceil(steps / 10))
        full = self._prepared.settings.learning_rate or 0.0
        return full * min((self._step + 1) / warm_up, 1 - self._step / steps)

    def _validate(self) -> None:
        rows = self._prepared.validation
        if not rows:
            return
        batches = make_batches(rows, self._prepared.settings.batch_size or 1, "validation")
        results: list[BatchLosses] = []
        count = 0
        with torch.no_grad():
            for batch in batches:
                results.append(compute_losses(self._model, batch))
                count += sum(map(len, batch))
                if count >= _MAX_VALIDATION_ROWS:
                    break
        losses = torch.cat([result.losses for result in results])
        correct = torch.cat([result.correct for result in results])
        validated = ValidationResult(
            self._step, losses.mean().item(), correct.float().mean().item()
        )
        self._validated.append(validated)
        self._on_step(validated)

    def _save_if_due(self) -> None:
        stopping = self._should_stop()
        is_due = time.monotonic() - self._saved_at >= _CHECKPOINT_S
        if stopping or is_due or self._step % self._prepared.settings.checkpoint_steps == 0:
            self._saved_at = time.monotonic()
            TrainingState.write(
                self._folder,
                self._prepared.identity,
                self._step,
                self._list_validations(),
                self._trained,
                [optimizer for optimizer, _ in self._optimizers],
            )
        if stopping:
            raise TrainingStopped(
                f"training was stopped after step {self._step} of {self._prepared.steps}; "
                "repeat the call to resume it"
            )

    def _list_validations(self) -> list[tuple[int, float, float]]:
        return [(result.step, result.loss, result.accuracy) for result in self._validated]

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
                "validated": self._list_validations(),
                "provenance": {**collect_provenance().record(), "torch": torch.__version__},
            },
        ).write(self._folder, self._trained)
        remove_checkpoint(self._folder)
        return trained
