"""Connection between a driver and a worker: pickled objects, in order, in both directions.

Replies to messages that arrived together are sent together. An exception arrives with its
class, its message and its original traceback; if it cannot be pickled, it arrives as a new
class of the same name. Both ends are trusted, because they are one program.

`program` builds the command that starts a worker. This module is light to import, because
cluster nodes import it.
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
    """One end of a connection; messages sent before it is connected are sent on connection."""

    def __init__(self, hear: Callable[[Any], None], lost: Callable[[], None]) -> None:
        """Set the callbacks for received messages and for a lost connection."""
        self._hear, self._lost = hear, lost
        self._transport: asyncio.Transport | None = None
        self._arrived = bytearray()
        self._leaving: list[bytes] = []
        self._hearing = False

    def send(self, *message: Any) -> None:
        """Send values as one tuple; call it only from the thread of the loop."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._leaving += (_LENGTH.pack(len(body)), body)
        # Sent immediately, so that the other end can work in parallel.
        if not self._hearing:
            self._flush()

    def close(self) -> None:
        """Send waiting data, and close the connection."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately, because the other end is gone."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        if self._transport is None:
            return
        packet, self._leaving = b"".join(self._leaving), []
        if packet and not self._transport.is_closing():
            self._transport.write(packet)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send waiting messages; called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Dispatch complete messages; called by the event loop."""
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
        """Report the lost connection; called by the event loop."""
        self._lost()


class PackedError(NamedTuple):
    """An exception in a form that can be sent to another process."""

    pickled: bytes | None
    name: str
    message: str
    base: type[BaseException]
    """Its nearest base class that every process can import."""
    traceback: str


class _RemoteTraceback(Exception):
    """Traceback of an exception in another process; used as its cause."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def pack_error(error: BaseException) -> PackedError:
    """Make any exception ready to be sent."""
    known = ("builtins", "assay.errors")
    said = trial_error(error)
    try:
        pickled = pickle.dumps(error)
    except Exception:  # the class may be user-defined
        pickled = None
    return PackedError(
        pickled,
        said.type,
        said.message,
        next(base for base in type(error).__mro__ if base.__module__ in known),
        said.traceback,
    )


def unpack_error(packed: PackedError) -> BaseException:
    """Return the sent exception, or one with an equal name, message and known base class."""
    try:
        error = pickle.loads(packed.pickled or b"")
        assert type(error).__name__ == packed.name
    except Exception:  # the class may be user-defined and missing here
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
    """Return the command that starts a worker.

    Args:
        path: Module search path, as `sys.path`.
        descriptor: Inherited socket, connected to the driver.
        parent: Process id; the worker ends with that process. None if the connection is
            enough to end it.
        own_path: Whether its own module search path comes first, and `path` after it.
    """
    where = "sys.path += " if own_path else "sys.path[:] = "
    text = _PROGRAM.format(f"{where}{list(path)!r}", descriptor, parent)
    return [sys.executable, "-c", text]
