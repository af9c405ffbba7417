"""Every exception assay raises on purpose.

    AssayError
    ├── UsageError (ValueError)      a value the caller gave is not allowed
    │   ├── AmbiguousName            a name that could mean several things
    │   ├── SnapshotError            bytes that are not a valid saved world
    │   ├── InvalidField             fields of a request that are not allowed
    │   ├── RequestTooLarge          more than a request may hold
    │   ├── AccessDenied             a service that asks for a token, or for another host
    │   ├── ReplayError              a session that says too little to be played again
    │   └── ModelRejected            no such model, no access, or a request it cannot read
    ├── EpisodeOver (RuntimeError)   a finished world was asked to go on
    ├── WorldFull (RuntimeError)     more creatures and plants than a world can hold
    ├── UnknownInstance (LookupError)      no such instance, or no longer
    ├── InstanceLimit (RuntimeError)       a service holds as many instances as it may
    ├── ServiceError (ConnectionError)     a service could not be reached, or failed
    ├── ModelRefused (RuntimeError)        a model will not answer: a failure of the subject
    ├── ModelUnavailable (ConnectionError) a model could not be asked, for all the retries
    ├── BudgetSpent (RuntimeError)   the next call does not fit into what may be spent
    ├── TrainingStopped (RuntimeError)     a training was stopped, and can be resumed
    ├── LoopStopped (RuntimeError)         a stage of a loop was stopped, and can be resumed
    ├── HookError (RuntimeError)     a user's hook raised, or reported nonsense
    ├── UserCodeError (RuntimeError) a user's agent or environment raised, hung, or erred
    ├── SandboxUnavailable (ConnectionError)  no sandbox, or one that cannot hold a limit
    │   └── SetupTimeout (TimeoutError)       a repository that was not ready in time
    ├── PatchRejected (RuntimeError)       a patch does not apply, or leaves its repository
    ├── TrainerFailed (RuntimeError)       a trainer ended before its time
    ├── WorkerLost (ConnectionError) processes that ran a trial were killed, or did not start
    ├── JournalError (OSError)       a journal that is damaged in the middle
    ├── StoreError (OSError)         a database that cannot be opened, read or written
    │   └── StoreBusy                another process holds it
    └── OutputError (OSError)        a result could not be written

Messages name the bad value, what is allowed and what to do next; the command
line prints them as they are, without a traceback. Imports nothing of assay.
"""

from typing import Any


class AssayError(Exception):
    """The base of all exceptions that assay raises on purpose."""


class UsageError(AssayError, ValueError):
    """A value the caller gave is not allowed; nothing was started."""


class AmbiguousName(UsageError):
    """A name that could mean several things; the message has some of them."""


class SnapshotError(UsageError):
    """Bytes that are not a valid saved world."""


class InvalidField(UsageError):
    """Fields of a request that are not allowed.

    `problems` has a (field, message, allowed values or None) for each of them.
    """

    def __init__(self, problems: list[tuple[str, str, list[Any] | None]]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(f"{field}: {message}" for field, message, _ in self.problems)


class RequestTooLarge(UsageError):
    """More than a request may hold."""


class AccessDenied(UsageError):
    """A service that asks for a token, or that answers to another host only."""


class EpisodeOver(AssayError, RuntimeError):
    """A finished world was asked to go on."""


class WorldFull(AssayError, RuntimeError):
    """More creatures and plants than a world can hold."""


class UnknownInstance(AssayError, LookupError):
    """No instance has this id, or it was terminated or expired."""


class InstanceLimit(AssayError, RuntimeError):
    """A service holds as many instances as it may; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ServiceError(AssayError, ConnectionError):
    """A service could not be reached, or did not do its part."""


class ModelRefused(AssayError, RuntimeError):
    """A model will not answer this, or the request is too long for it."""


class ModelUnavailable(AssayError, ConnectionError):
    """A model could not be asked, for all the retries; `kind` says why."""

    def __init__(self, message: str, kind: str = "connection") -> None:
        super().__init__(message)
        self.kind = kind
        """rate_limit, overload, timeout, connection, server_error or malformed."""


class ReplayError(UsageError):
    """A session that says too little to be played again."""


class ModelRejected(UsageError):
    """A model does not exist, may not be used, or cannot read such requests at all."""


class BudgetSpent(AssayError, RuntimeError):
    """The next call does not fit into what may be spent."""


class TrainingStopped(AssayError, RuntimeError):
    """A training was stopped, and kept what it had learned so far."""


class LoopStopped(AssayError, RuntimeError):
    """A stage of a loop was stopped before its end; the same command resumes it."""


class HookError(AssayError, RuntimeError):
    """A hook raised, or reported something that cannot be stored: a failure of the subject."""


class UserCodeError(AssayError, RuntimeError):
    """An agent or environment of the user's own raised, hung, or gave what cannot be used.

    A failure of the subject, whatever it raised.
    """


class SandboxUnavailable(AssayError, ConnectionError):
    """A sandbox cannot be made here, broke down, or cannot hold a limit that was asked for."""


class SetupTimeout(SandboxUnavailable, TimeoutError):
    """The repository of a task was not ready in time."""


class PatchRejected(AssayError, RuntimeError):
    """A patch does not apply to its repository, or would change something outside of it."""


class TrainerFailed(AssayError, RuntimeError):
    """A trainer ended before its time, and why is not known; it may be tried again."""


class WorkerLost(AssayError, ConnectionError):
    """Processes that ran a trial were killed from outside, or could not be started."""


class JournalError(AssayError, OSError):
    """A journal that is damaged where it should not be."""


class StoreError(AssayError, OSError):
    """A database that cannot be opened, read or written."""


class StoreBusy(StoreError):
    """Another process holds the database."""


class OutputError(AssayError, OSError):
    """A result could not be written."""
