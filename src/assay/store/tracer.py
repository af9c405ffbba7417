"""Records any loop of one's own: a session, written down as it goes.

    with SessionTracer("traces.duckdb", name="my loop", task="maze", seed=1) as tracer:
        tracer.message({"role": "user", "content": "where to?"})
        tracer.call({"role": "assistant", "content": "north"})
        tracer.step("north", reward=1.0)
        tracer.outcome("score", 3.0)

The session ends as a result, or as a failure if the block raises. It is in its journal then,
and goes into the database together with others: when assay opens it, here or in another
process, when many are waiting, or when this process ends. If the process dies, what was
journaled is stored all the same. A turn reaches the journal when the next one begins.
Threads may share a tracer.
"""

import asyncio
import atexit

# What stores sessions at exit imports it, which is not allowed by then.
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

from assay.core.canonical_json import canonical_json, content_hash, derived_id
from assay.core.provenance import provenance
from assay.core.secrets import mask
from assay.core.text import shown
from assay.errors import StoreError, UsageError
from assay.store.codec import checked
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
from assay.store.store import TRACER_COMMAND, take_in
from assay.types import Encoded, Message, StopReason, TrialState, Usage

_Method = TypeVar("_Method", bound=Callable[..., Any])

_MANY = 100
"""Sessions that wait in their journals before they are stored."""
_PATIENCE_S = 30.0
"""How long a process that ends, or a session that begins, waits for whoever has the file."""

_log = logging.getLogger(__name__)
_waiting: Counter[Path] = Counter()
"""By database, the sessions that this process has ended since it last stored some."""
_guard = threading.Lock()


@atexit.register
def _store_all() -> None:
    for database in [path for path, count in _waiting.items() if count]:
        try:
            take_in(database, patience=_PATIENCE_S)
        except (StoreError, OSError) as error:
            _log.warning(
                "%s", f"sessions wait beside {database}, for the next command on it: {error}"
            )


def _one_at_a_time(method: _Method) -> _Method:
    @wraps(method)
    def alone(self: "SessionTracer", *values: Any, **named: Any) -> Any:
        with self._lock:
            return method(self, *values, **named)

    return cast(_Method, alone)


class SessionTracer:
    """A context manager that records one session; see the module for an example."""

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
        """Say what will be recorded; nothing is written yet.

        Args:
            database: the file to store it in, made if it is missing.
            name: the series of the experiment.
            task: what is tried.
            seed: of the task.
            subject: who tries; `name` if not given.
            run_id: sessions with the same one belong together; one of its own by default.
            episode: tells apart sessions of one run, subject and seed.
            replicate: 0 unless the same subject tries the same task and seed again.
            tools: what the model may call, in the shape of the chat protocol.
            metadata: all else worth keeping.
            tags: of the experiment.
        """
        subject = subject or name
        run_id = run_id or derived_id("run", uuid4().hex)
        experiment_id = derived_id(run_id, subject)
        again = (replicate,) if replicate else ()
        self._lock = threading.RLock()
        self._database = Path(database)
        header = SessionHeader(
            session_id=derived_id(
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
        self._header = checked(header)
        fingerprint = content_hash(canonical_json([name, subject, task]))
        self._run = RunRecord(
            id=run_id,
            command=TRACER_COMMAND,
            configuration={},
            provenance=provenance().record(),
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
        """The session that is being recorded."""
        return self._header.session_id

    @property
    def run_id(self) -> str:
        """The run it belongs to."""
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
            return self._new_folder()
        except UsageError:
            # This very session may wait from before.
            take_in(self._database, patience=_PATIENCE_S)
            return self._new_folder()

    def _new_folder(self) -> RunFolder:
        return RunFolder.create(self._database, self._run, name=self.session_id, at_once=False)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    @_one_at_a_time
    def message(self, value: Mapping[str, Any], message_type: str | None = None) -> int:
        """Record a message of the conversation and return its position."""
        record = self._message(value, message_type, self._turns + 1)
        self._flush()
        self._recorder.add_messages([record])
        return record.position

    def _message(
        self, value: Mapping[str, Any], message_type: str | None, turn: int
    ) -> MessageRecord:
        if not isinstance(value.get("role"), str):
            raise UsageError(f"a message needs a role, such as 'user'; got {dict(value)!r}")
        kind = message_type or str(value["role"])
        record = MessageRecord(self._messages, turn, Message(dict(value)), kind, time.time())
        self._messages += 1
        return record

    @_one_at_a_time
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
        """Record the answer of a model, which begins a turn.

        Args:
            reply: the assistant's message.
            request: positions of the messages that were sent; all so far by default.
            model: who was asked; the subject by default.
            provider: who answered.
            usage: tokens.
            cost_usd: in dollars, if known.
            latency_s: how long it took.
            finish_reason: why the answer ended.
            asked: the actions it asks for.
            parameters: temperature and the like.
        """
        sent = tuple(range(self._messages)) if request is None else tuple(request)
        call = CallRecord(
            turn=self._turns + 1,
            at=time.time(),
            request=sent,
            reply=self._messages,
            model=model or self._header.subject,
            provider=provider,
            # A stream that was cut off says no reason.
            finish_reason=finish_reason or "",
            usage=usage or Usage(),
            cost_usd=cost_usd,
            latency_s=latency_s,
            parameters=dict(parameters or {}),
        )
        call = checked(call)
        self.turn(asked=asked)
        message = self._message(reply, "reply", self._turns)
        self._recorder.add_call(call, [message])

    @_one_at_a_time
    def turn(
        self,
        *,
        asked: Sequence[str] = (),
        unknown: Sequence[str] = (),
        malformed: str | None = None,
    ) -> None:
        """Begin a turn that no model was asked for; `call` begins its own."""
        played = PlayedRecord(
            turn=self._turns + 1,
            at=time.time(),
            asked=tuple(asked),
            unknown=tuple(unknown),
            malformed=malformed,
        )
        played = checked(played)
        self._flush()
        self._turns += 1
        self._explicit = True
        self._open = played

    @_one_at_a_time
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
        """Record a step and return its index; outside of a turn it is one of its own."""
        step = StepRecord(
            index=self._steps + 1,
            action=action,
            reward=_number("reward", reward),
            digest=digest,
            unlocked=tuple(unlocked),
            no_effect=no_effect,
            terminated=terminated,
            truncated=truncated,
        )
        step = checked(step)
        if self._open is None or not self._explicit:
            self.turn(asked=(action,))
            self._explicit = False
        self._steps += 1
        played = self._current()
        self._open = replace(played, steps=(*played.steps, step), at=time.time())
        return step.index

    @_one_at_a_time
    def hook(
        self,
        name: str,
        *,
        code: str = "",
        priority: int = 0,
        description: str = "",
        **data: Any,
    ) -> None:
        """Record something worth noticing about the last step, or about the turn."""
        played = self._current()
        hook = HookRecord(
            name=name,
            code=code,
            priority=priority,
            step=played.steps[-1].index if played.steps else None,
            description=description,
            data=data,
        )
        self._open = replace(played, hooks=(*played.hooks, checked(hook)))

    @_one_at_a_time
    def outcome(self, metric: str, value: float) -> None:
        """Record a number that the session earned; it counts if the block ends well."""
        self._outcomes[metric] = _number(f"outcome {metric!r}", value)

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
            # What went wrong first matters more; the journal is there for later.
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
            take_in(self._database)
        except StoreError:
            # Somebody has the file: some sessions later it is tried again.
            _waiting[self._database] = _MANY - _MANY // 10

    def _end(self, error: BaseException | None) -> None:
        self._recorder.seconds = time.monotonic() - self._started
        if error is None:
            self._recorder.end(TrialState.RESULT, StopReason.DONE, self._outcomes)
            return
        # Whoever stops a program by hand says nothing about its subject.
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


def _number(what: str, value: float) -> float:
    # numpy's numbers are welcome, a text that looks like one is not.
    if isinstance(value, str | bytes) or not isfinite(value):
        raise UsageError(f"{what} must be a finite number, got {shown(value)}")
    return float(value)
