"""One connection between a driver and a worker: objects by pickle, in order, both ways.

Answers to what arrived together leave together. An exception arrives as the same
class with the same message, and with the traceback of where it was raised; one that cannot
be pickled arrives as a class of the same name. Both ends are trusted: they are one program.

The command that starts a worker; light to import, because nodes of clusters do it.
"""

import asyncio
import pickle
import sys
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from assay.runs.control import trial_error

_LENGTH: Final = Struct(">Q")


class Channel(asyncio.Protocol):
    """One end of a connection; what is sent before there is one leaves with it."""

    def __init__(self, hear: Callable[[Any], None], lost: Callable[[], None]) -> None:
        """Say who hears what arrives, and that nothing will arrive any more."""
        self._hear, self._lost = hear, lost
        self._transport: asyncio.Transport | None = None
        self._arrived = bytearray()
        self._leaving: list[bytes] = []
        self._hearing = False

    def send(self, *message: Any) -> None:
        """Send some values as one tuple; only from the thread of the loop."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._leaving += (_LENGTH.pack(len(body)), body)
        # At once, so that the other end works while this one does.
        if not self._hearing:
            self._flush()

    def close(self) -> None:
        """Send what is waiting, and hang up."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Hang up at once: nobody is at the other end."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        if self._transport is None:
            return
        packet, self._leaving = b"".join(self._leaving), []
        if packet and not self._transport.is_closing():
            self._transport.write(packet)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._arrived += data
        start, there = 0, len(self._arrived)
        self._hearing = True
        while start + _LENGTH.size <= there:
            body = start + _LENGTH.size
            end = body + _LENGTH.unpack_from(self._arrived, start)[0]
            if end > there:
                break
            message = pickle.loads(memoryview(self._arrived)[body:end].tobytes())
            start = end
            self._hear(message)
        del self._arrived[:start]
        self._hearing = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._lost()


class PackedError(NamedTuple):
    """An exception on its way to another process."""

    pickled: bytes | None
    name: str
    message: str
    base: type[BaseException]
    """The nearest class of it that every process knows."""
    traceback: str


class _RemoteTraceback(Exception):
    """Stands for where an exception was raised, in another process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def pack_error(error: BaseException) -> PackedError:
    """Get an exception ready to be sent; any can be."""
    known = ("builtins", "assay.errors")
    said = trial_error(error)
    try:
        pickled = pickle.dumps(error)
    except Exception:  # the class may be anybody's
        pickled = None
    return PackedError(
        pickled,
        said.type,
        said.message,
        next(base for base in type(error).__mro__ if base.__module__ in known),
        said.traceback,
    )


def unpack_error(packed: PackedError) -> BaseException:
    """The exception that was sent, or one that is sorted and reads like it."""
    try:
        error = pickle.loads(packed.pickled or b"")
        assert type(error).__name__ == packed.name
    except Exception:  # the class may be anybody's, and unknown here
        like: Any = type(packed.name, (packed.base,), {})
        error = like.__new__(like, packed.message)
    error.__cause__ = _RemoteTraceback(packed.traceback)
    assert isinstance(error, BaseException)
    return error


_PROGRAM: Final = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "{}; from assay.runs.workers.worker import main; main({}, {})"
)


def program(
    path: Sequence[str], descriptor: int, *, parent: int | None = None, own_path: bool = False
) -> list[str]:
    """The command that starts a worker.

    Args:
        path: Where it finds modules, as `sys.path`.
        descriptor: The socket that it inherits, connected to its driver.
        parent: The process with which it ends; None if its connection is enough.
        own_path: Whether it looks first where Python does there, and in `path` after that.
    """
    where = "sys.path += " if own_path else "sys.path[:] = "
    text = _PROGRAM.format(f"{where}{list(path)!r}", descriptor, parent)
    return [sys.executable, "-c", text]
