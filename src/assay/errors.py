"""All exceptions that assay raises deliberately.

    AssayError
    ├── UsageError (ValueError)      a value given by the caller is invalid
    │   ├── AmbiguousName            a name has several possible meanings
    │   ├── SnapshotError            data is not a valid saved world
    │   ├── InvalidField             fields of a request are invalid
    │   ├── RequestTooLarge          a request exceeds its maximum size
    │   ├── AccessDenied             a service requires a token, or another host name
    │   ├── ReplayError              a session has too little data to be replayed
    │   └── ModelRejected            unknown model, no access, or an unsupported request
    ├── EpisodeOver (RuntimeError)   a step in a world that has ended
    ├── WorldFull (RuntimeError)     more creatures and plants than a world can contain
    ├── UnknownInstance (LookupError)      an instance does not exist (any more)
    ├── InstanceLimit (RuntimeError)       a service has its maximum number of instances
    ├── ServiceError (ConnectionError)     a service is unreachable, or failed
    ├── ModelRefused (RuntimeError)        a model refuses to respond: counts as a failure
    ├── ModelUnavailable (ConnectionError) a model call failed after all retries
    ├── BudgetSpent (RuntimeError)   the next call would exceed the budget
    ├── TrainingStopped (RuntimeError)     training was stopped, and can be resumed
    ├── LoopStopped (RuntimeError)         a stage of a loop was stopped, and can be resumed
    ├── HookError (RuntimeError)     a user's hook raised, or returned an invalid result
    ├── UserCodeError (RuntimeError) a user's agent or environment raised, hung, or erred
    ├── SandboxUnavailable (ConnectionError)  no sandbox, or a limit cannot be enforced
    │   └── SetupTimeout (TimeoutError)       a repository was not ready in time
    ├── PatchRejected (RuntimeError)       a patch does not apply, or leaves its repository
    ├── TrainerFailed (RuntimeError)       a trainer ended too early
    ├── WorkerLost (ConnectionError) worker processes were killed, or did not start
    ├── JournalError (OSError)       a journal is damaged, or cannot be written
    ├── StoreError (OSError)         a database cannot be opened, read or written
    │   └── StoreBusy                another process holds the database
    └── OutputError (OSError)        a result cannot be written

Messages name the invalid value, the allowed values and the next step. The command line prints
them unchanged, without a traceback. This module imports nothing from assay.
"""

from typing import Any


class AssayError(Exception):
    """Base class of all exceptions that assay raises deliberately."""


class UsageError(AssayError, ValueError):
    """A value given by the caller is invalid; nothing was started."""


class AmbiguousName(UsageError):
    """A name has several possible meanings; the message lists some of them."""


class SnapshotError(UsageError):
    """Data is not a valid saved world."""


class InvalidField(UsageError):
    """Fields of a request are invalid.

    `problems` has a tuple (field, message, allowed values or None) for each of them.
    """

    def __init__(self, problems: list[tuple[str, str, list[Any] | None]]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(f"{field}: {message}" for field, message, _ in self.problems)


class RequestTooLarge(UsageError):
    """A request exceeds its maximum size."""


class AccessDenied(UsageError):
    """A service requires a token, or accepts only another host name."""


class EpisodeOver(AssayError, RuntimeError):
    """A step in a world that has ended."""


class WorldFull(AssayError, RuntimeError):
    """More creatures and plants than a world can contain."""


class UnknownInstance(AssayError, LookupError):
    """No instance has this id, or it was terminated or expired."""


class InstanceLimit(AssayError, RuntimeError):
    """A service has its maximum number of instances; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ServiceError(AssayError, ConnectionError):
    """A service is unreachable, or did not work as expected."""


class ModelRefused(AssayError, RuntimeError):
    """A model refuses to respond, or the request is too long for it."""


class ModelUnavailable(AssayError, ConnectionError):
    """A model call failed after all retries; `kind` is the kind of error."""

    def __init__(self, message: str, kind: str = "connection") -> None:
        super().__init__(message)
        self.kind = kind
        """One of rate_limit, overload, timeout, connection, server_error and malformed."""


class ReplayError(UsageError):
    """A session has too little data to be replayed."""


class ModelRejected(UsageError):
    """A model does not exist, is not accessible, or does not support such requests at all."""


class BudgetSpent(AssayError, RuntimeError):
    """The next call would exceed the budget."""


class TrainingStopped(AssayError, RuntimeError):
    """Training was stopped; its progress is saved."""


class LoopStopped(AssayError, RuntimeError):
    """A stage of a loop was stopped before its end; the same command resumes it."""


class HookError(AssayError, RuntimeError):
    """A hook raised, or returned a result that cannot be stored; counts as a failure."""


class UserCodeError(AssayError, RuntimeError):
    """A user-defined agent or environment raised, hung, or returned an invalid value.

    Counts as a failure of the entry, regardless of the original exception.
    """


class SandboxUnavailable(AssayError, ConnectionError):
    """A sandbox cannot be created here, broke down, or cannot enforce a requested limit."""


class SetupTimeout(SandboxUnavailable, TimeoutError):
    """The repository of a task was not ready in time."""


class PatchRejected(AssayError, RuntimeError):
    """A patch does not apply to its repository, or would change files outside of it."""


class TrainerFailed(AssayError, RuntimeError):
    """A trainer ended too early for an unknown reason; it may be retried."""


class WorkerLost(AssayError, ConnectionError):
    """Processes that ran a trial were killed from outside, or could not be started."""


class JournalError(AssayError, OSError):
    """A journal is damaged, or cannot be written."""


class StoreError(AssayError, OSError):
    """A database cannot be opened, read or written."""


class StoreBusy(StoreError):
    """Another process holds the database."""


class OutputError(AssayError, OSError):
    """A result cannot be written."""
