"""Recording of sessions from user code.

    with SessionTracer("traces.duckdb", name="my loop", task="maze", seed=1) as tracer:
        tracer.message({"role": "user", "content": "where to?"})
        tracer.call({"role": "assistant", "content": "north"})
        tracer.step("north", reward=1.0)
        tracer.outcome("score", 3.0)

The session ends as a result, or as a failure if the block raises. It is then in its journal,
and is stored together with others: when assay opens the database, in this or another process,
when many are waiting, or when this process exits. If the process dies, the journaled part is
stored all the same. A turn is journaled when the next one begins. A tracer is thread-safe.
"""

import asyncio
import atexit

# Storing sessions at exit needs this module, which cannot be imported by then.
import concurrent.futures.thread  # noqa: F401
import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast
from uuid import uuid4

from assay.core.canonical_json import canonical_json, content_hash, derive_id
from assay.core.provenance import collect_provenance
from assay.core.secrets import mask
from assay.core.text import shown
from assay.errors import StoreError, UsageError
from assay.store.codec import check_record
from assay.store.recorder import Recorder
from assay.store.records import (
    CallRecord,
    ErrorRecord,
    ExperimentRecord,
    HookRecord,
    MessageRecord,
    PlayedRecord,
    RunRecord,
    SessionHeader,
    StepRecord,
)
from assay.store.run_folder import RunFolder
from assay.store.schema import StoredKind
from assay.store.store import TRACER_COMMAND, store_traced_sessions
from assay.types import Encoded, Message, StopReason, TrialState, Usage

_Method = TypeVar("_Method", bound=Callable[..., Any])

_MANY = 100
"""Sessions that wait in their journals before they are stored."""
_PATIENCE_S = 30.0
"""Time to wait for the database at exit, or if a session with the same id is not stored yet."""

_log = logging.getLogger(__name__)
_waiting: Counter[Path] = Counter()
"""Sessions that this process ended since it last stored some, by database."""
_guard = threading.Lock()


@atexit.register
def _store_all() -> None:
    for database in [path for path, count in _waiting.items() if count]:
        try:
            store_traced_sessions(database, patience=_PATIENCE_S)
        except (StoreError, OSError) as error:
            _log.warning(
                "%s", f"sessions are kept in journals next to {database} for now: {error}"
            )


def _synchronized(method: _Method) -> _Method:
    @wraps(method)
    def wrapper(self: "SessionTracer", *values: Any, **keywords: Any) -> Any:
        with self._lock:
            return method(self, *values, **keywords)

    return cast(_Method, wrapper)


class SessionTracer:
    """Context manager that records one session; see the module for an example."""

    def __init__(
        self,
        database: Path | str,
        *,
        name: str,
        task: str,
        seed: int | None = None,
        subject: str | None = None,
        run_id: str | None = None,
        episode: int = 0,
        replicate: int = 0,
        tools: Sequence[Mapping[str, Any]] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the facts about the session; nothing is written yet.

        Args:
            database: The database file, created if missing.
            name: The series of the experiment.
            task: The task.
            seed: The seed of the task.
            subject: The model or agent (default: `name`).
            run_id: Groups sessions into a run (default: a new id).
            episode: Distinguishes sessions with the same run, subject and seed.
            replicate: Number of the repetition of the same task and seed, from 0.
            tools: Tools the model may call, in the format of the chat protocol.
            metadata: Further facts to store.
            tags: Tags of the experiment.
        """
        subject = subject or name
        run_id = run_id or derive_id("run", uuid4().hex)
        experiment_id = derive_id(run_id, subject)
        again = (replicate,) if replicate else ()
        self._lock = threading.RLock()
        self._database = Path(database)
        header = SessionHeader(
            session_id=derive_id(
                run_id, subject, -1 if seed is None else seed, episode, *again
            ),
            run_id=run_id,
            experiment_id=experiment_id,
            subject=subject,
            task=task,
            seed=seed,
            episode=episode,
            replicate=replicate,
            created_at=time.time(),
            tools=None if tools is None else Encoded(list(tools)),
            metadata=dict(metadata or {}),
            trial_kind=StoredKind.TRACED.value,
        )
        self._header = check_record(header)
        fingerprint = content_hash(canonical_json([name, subject, task]))
        self._run = RunRecord(
            id=run_id,
            command=TRACER_COMMAND,
            configuration={},
            provenance=collect_provenance().record(),
            created_at=self._header.created_at,
            experiments=(
                ExperimentRecord(
                    id=experiment_id,
                    series=name,
                    model=subject,
                    fingerprint=fingerprint,
                    tags=dict(tags or {}),
                ),
            ),
        )
        self._messages = self._turns = self._steps = 0
        self._open: PlayedRecord | None = None
        self._explicit = False
        self._outcomes: dict[str, float] = {}

    @property
    def session_id(self) -> str:
        """Id of the session."""
        return self._header.session_id

    @property
    def run_id(self) -> str:
        """Id of its run."""
        return self._header.run_id

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        with ExitStack() as opened:
            self._folder = self._make_folder()
            opened.enter_context(self._folder.hold())
            path = self._folder.path(self.session_id)
            self._recorder = Recorder.open(path, lambda: self._header)
            self._held = opened.pop_all()
        return self

    def _make_folder(self) -> RunFolder:
        try:
            return self._create_folder()
        except UsageError:
            # An earlier session with this id may not be stored yet.
            store_traced_sessions(self._database, patience=_PATIENCE_S)
            return self._create_folder()

    def _create_folder(self) -> RunFolder:
        return RunFolder.create(self._database, self._run, name=self.session_id, at_once=False)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    @_synchronized
    def message(self, value: Mapping[str, Any], message_type: str | None = None) -> int:
        """Record a message of the conversation and return its position."""
        record = self._make_message(value, message_type, self._turns + 1)
        self._flush()
        self._recorder.add_messages([record])
        return record.position

    def _make_message(
        self, value: Mapping[str, Any], message_type: str | None, turn: int
    ) -> MessageRecord:
        if not isinstance(value.get("role"), str):
            raise UsageError(f"a message needs a role, such as 'user'; got {dict(value)!r}")
        kind = message_type or str(value["role"])
        record = MessageRecord(self._messages, turn, Message(dict(value)), kind, time.time())
        self._messages += 1
        return record

    @_synchronized
    def call(
        self,
        reply: Mapping[str, Any],
        *,
        request: Sequence[int] | None = None,
        model: str | None = None,
        provider: str = "custom",
        usage: Usage | None = None,
        cost_usd: float | None = None,
        latency_s: float = 0.0,
        finish_reason: str | None = "stop",
        asked: Sequence[str] = (),
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a model call and its reply, which begins a turn.

        Args:
            reply: The assistant's message.
            request: Positions of the messages that were sent (default: all so far).
            model: The model (default: the subject).
            provider: The provider.
            usage: Token counts.
            cost_usd: Cost in dollars, if known.
            latency_s: Duration of the call.
            finish_reason: Why the reply ended.
            asked: Actions in the reply.
            parameters: Parameters such as temperature.
        """
        sent = tuple(range(self._messages)) if request is None else tuple(request)
        call = CallRecord(
            turn=self._turns + 1,
            at=time.time(),
            request=sent,
            reply=self._messages,
            model=model or self._header.subject,
            provider=provider,
            # A stream that was cut off has no finish reason.
            finish_reason=finish_reason or "",
            usage=usage or Usage(),
            cost_usd=cost_usd,
            latency_s=latency_s,
            parameters=dict(parameters or {}),
        )
        call = check_record(call)
        self.turn(asked=asked)
        message = self._make_message(reply, "reply", self._turns)
        self._recorder.add_call(call, [message])

    @_synchronized
    def turn(
        self,
        *,
        asked: Sequence[str] = (),
        unknown: Sequence[str] = (),
        malformed: str | None = None,
    ) -> None:
        """Begin a turn without a model call; `call` begins its own turn."""
        played = PlayedRecord(
            turn=self._turns + 1,
            at=time.time(),
            asked=tuple(asked),
            unknown=tuple(unknown),
            malformed=malformed,
        )
        played = check_record(played)
        self._flush()
        self._turns += 1
        self._explicit = True
        self._open = played

    @_synchronized
    def step(
        self,
        action: str,
        *,
        reward: float = 0.0,
        digest: str | None = None,
        unlocked: Sequence[str] = (),
        no_effect: str | None = None,
        terminated: bool = False,
        truncated: bool = False,
    ) -> int:
        """Record a step and return its index; outside of a turn, it begins its own."""
        step = StepRecord(
            index=self._steps + 1,
            action=action,
            reward=_check_number("reward", reward),
            digest=digest,
            unlocked=tuple(unlocked),
            no_effect=no_effect,
            terminated=terminated,
            truncated=truncated,
        )
        step = check_record(step)
        if self._open is None or not self._explicit:
            self.turn(asked=(action,))
            self._explicit = False
        self._steps += 1
        played = self._current()
        self._open = replace(played, steps=(*played.steps, step), at=time.time())
        return step.index

    @_synchronized
    def hook(
        self,
        name: str,
        *,
        code: str = "",
        priority: int = 0,
        description: str = "",
        **data: Any,
    ) -> None:
        """Record a hook result for the last step, or for the turn if it has no steps."""
        played = self._current()
        hook = HookRecord(
            name=name,
            code=code,
            priority=priority,
            step=played.steps[-1].index if played.steps else None,
            description=description,
            data=data,
        )
        self._open = replace(played, hooks=(*played.hooks, check_record(hook)))

    @_synchronized
    def outcome(self, metric: str, value: float) -> None:
        """Record the value of a metric; it is stored unless the block raises."""
        self._outcomes[metric] = _check_number(f"outcome {metric!r}", value)

    def _current(self) -> PlayedRecord:
        if self._open is None:
            self.turn()
        assert self._open is not None
        return self._open

    def _flush(self) -> None:
        if self._open is not None:
            self._recorder.add_played(self._open)
            self._open = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with self._lock:
                self._flush()
                self._end(error)
        except Exception as problem:
            if error is None:
                raise
            # The first error is more important; the journal can be stored later.
            error.add_note(f"the session is not stored yet: {problem}")
        finally:
            self._held.close()
        self._store_many()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _store_many(self) -> None:
        with _guard:
            _waiting[self._database] += 1
            if _waiting[self._database] < _MANY:
                return
            _waiting[self._database] = 0
        try:
            store_traced_sessions(self._database)
        except StoreError:
            # Another process has the file; try again some sessions later.
            _waiting[self._database] = _MANY - _MANY // 10

    def _end(self, error: BaseException | None) -> None:
        self._recorder.seconds = time.monotonic() - self._started
        if error is None:
            self._recorder.end(TrialState.RESULT, StopReason.DONE, self._outcomes)
            return
        # KeyboardInterrupt and the like are not the subject's fault.
        is_failure = isinstance(error, Exception)
        name = type(error).__name__
        self._recorder.end(
            TrialState.FAILURE if is_failure else TrialState.INFRASTRUCTURE,
            name,
            {},
            ErrorRecord(
                type=name,
                message=mask(str(error)),
                traceback=mask("".join(traceback.format_exception(error))),
            ),
        )


def _check_number(what: str, value: float) -> float:
    # Accepts numpy numbers, but not text.
    if isinstance(value, str | bytes) or not isfinite(value):
        raise UsageError(f"{what} must be a finite number, got {shown(value)}")
    return float(value)
