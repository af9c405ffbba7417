"""Connection between a driver and a worker: pickled objects, in order, in both directions.

Replies to messages that arrived together are sent together. An exception arrives with its
class, its message and its original traceback; if it cannot be pickled, it arrives as a new
class of the same name. Both ends are trusted, because they are one program.

`make_worker_command` returns the command that starts a worker. This module is light to import,
because cluster nodes import it.
"""

import asyncio
import pickle
import sys
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from assay.runs.control import describe_error

_LENGTH: Final = Struct(">Q")


class Channel(asyncio.Protocol):
    """One end of a connection; messages sent before it is connected are sent on connection."""

    def __init__(self, on_message: Callable[[Any], None], on_lost: Callable[[], None]) -> None:
        """Set the callbacks for received messages and for a lost connection."""
        self._on_message, self._on_lost = on_message, on_lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._outgoing: list[bytes] = []
        self._is_dispatching = False

    def send(self, *message: Any) -> None:
        """Send values as one tuple; call it only from the thread of the loop."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._outgoing += (_LENGTH.pack(len(body)), body)
        # Sent immediately, so that the other end can work in parallel.
        if not self._is_dispatching:
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
        packet, self._outgoing = b"".join(self._outgoing), []
        if packet and not self._transport.is_closing():
            self._transport.write(packet)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send waiting messages; called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Dispatch complete messages; called by the event loop."""
        self._received += data
        start, size = 0, len(self._received)
        self._is_dispatching = True
        while start + _LENGTH.size <= size:
            body = start + _LENGTH.size
            end = body + _LENGTH.unpack_from(self._received, start)[0]
            if end > size:
                break
            message = pickle.loads(memoryview(self._received)[body:end].tobytes())
            start = end
            self._on_message(message)
        del self._received[:start]
        self._is_dispatching = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the lost connection; called by the event loop."""
        self._on_lost()


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
    importable = ("builtins", "assay.errors")
    description = describe_error(error)
    try:
        pickled = pickle.dumps(error)
    except Exception:  # the class may be user-defined
        pickled = None
    return PackedError(
        pickled,
        description.type,
        description.message,
        next(base for base in type(error).__mro__ if base.__module__ in importable),
        description.traceback,
    )


def unpack_error(packed: PackedError) -> BaseException:
    """Return the sent exception, or one with an equal name, message and known base class."""
    try:
        error = pickle.loads(packed.pickled or b"")
        assert type(error).__name__ == packed.name
    except Exception:  # the class may be user-defined and missing here
        substitute: Any = type(packed.name, (packed.base,), {})
        error = substitute.__new__(substitute, packed.message)
    error.__cause__ = _RemoteTraceback(packed.traceback)
    assert isinstance(error, BaseException)
    return error


_PROGRAM: Final = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "{}; from assay.runs.workers.worker import main; main({}, {})"
)


def make_worker_command(
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
    set_path = "sys.path += " if own_path else "sys.path[:] = "
    text = _PROGRAM.format(f"{set_path}{list(path)!r}", descriptor, parent)
    return [sys.executable, "-c", text]
