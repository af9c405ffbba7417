"""Access to Unix sockets of this machine from a remote sandbox, through `relay.py` there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import modal
from modal.container_process import ContainerProcess

from assay.errors import SandboxUnavailable
from assay.sandboxes.modal import relay
from assay.sandboxes.modal.remote import Remote, RemoteFailed, convert_errors

_SCRIPT: Final = Path(relay.__file__)
_TIMEOUT_S: Final = 30.0
_MAX_QUEUED: Final = 2048
"""Maximum number of queued pieces of a connection; with more, it is closed."""


@asynccontextmanager
async def relay_socket(
    remote: Remote, socket: Path, target: str, timeout_s: float
) -> AsyncIterator[None]:
    """Make a socket of this machine accessible in a sandbox during the block.

    Args:
        remote: The sandbox, which must have python3.
        socket: The socket on this machine.
        target: Its path in the sandbox.
        timeout_s: Time after which the relay ends, even if assay is gone.
    """
    process = await remote.start(
        "python3", "-I", "-c", _SCRIPT.read_text("utf-8"), target, timeout_s=timeout_s
    )
    local_end = _Relay(process, socket)
    task = asyncio.ensure_future(local_end.run())
    try:
        await asyncio.wait(
            {task, local_end.ready}, timeout=_TIMEOUT_S, return_when="FIRST_COMPLETED"
        )
        if not local_end.ready.done():
            raise SandboxUnavailable(
                "the sandbox cannot reach the model of its agent: python3 does not start there"
            )
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await local_end.end()


class _Connection(NamedTuple):
    """One connection."""

    task: "asyncio.Task[None]"
    queue: "asyncio.Queue[bytes]"
    """Data not yet written to the socket of this machine."""


class _Relay:
    """The local end of a relay."""

    def __init__(self, process: ContainerProcess[bytes], socket: Path) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._process, self._socket = process, socket
        self._turn = asyncio.Lock()
        self._connections: dict[int, _Connection] = {}
        self._ended: set[int] = set()

    async def run(self) -> None:
        """Read pieces until the stream ends."""
        pieces = _Pieces()
        async for chunk in self._process.stdout:
            for number, content in pieces.add(chunk):
                if not self.ready.done():
                    self.ready.set_result(None)
                if number:
                    self._on_piece(number, content)

    def _on_piece(self, number: int, content: bytes) -> None:
        if number in self._ended:
            return
        if number not in self._connections:
            queue = asyncio.Queue[bytes]()
            task = asyncio.ensure_future(self._serve(number, queue))
            task.add_done_callback(lambda _: self._on_end(number))
            self._connections[number] = _Connection(task, queue)
        connection = self._connections[number]
        connection.queue.put_nowait(content)
        if connection.queue.qsize() > _MAX_QUEUED:
            connection.task.cancel()

    def _on_end(self, number: int) -> None:
        del self._connections[number]
        self._ended.add(number)

    async def _serve(self, number: int, queue: "asyncio.Queue[bytes]") -> None:
        """Serve one connection, from its first byte to its last."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket))
        except OSError:
            await self._send(number, b"")
            return
        writing = asyncio.ensure_future(self._write_queue(queue, writer))
        try:
            with suppress(ConnectionError):
                while chunk := await reader.read(relay.CHUNK):
                    await self._send(number, chunk)
            await self._send(number, b"")
        finally:
            writing.cancel()
            writer.close()

    async def _write_queue(
        self, queue: "asyncio.Queue[bytes]", writer: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            while content := await queue.get():
                writer.write(content)
                await writer.drain()
            writer.write_eof()

    async def _send(self, number: int, content: bytes) -> None:
        async with self._turn:
            with suppress(modal.exception.Error):  # the other end is gone
                self._process.stdin.write(relay.encode_piece(number, content))
                await self._process.stdin.drain.aio()

    async def end(self) -> None:
        """End the program in the sandbox, and wait for it."""
        for connection in list(self._connections.values()):
            connection.task.cancel()
        with suppress(SandboxUnavailable), convert_errors():
            self._process.stdin.write_eof()
            await self._process.stdin.drain.aio()
            await asyncio.wait_for(self._process.wait.aio(), _TIMEOUT_S)


class _Pieces:
    """Joins the pieces of a stream; the line `ready` is reported as number 0."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_ready = False

    def add(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """Add bytes; return the pieces that are complete."""
        self._rest += chunk
        found = []
        if not self._is_ready and len(self._rest) >= len(relay.READY):
            del self._rest[: len(relay.READY)]
            self._is_ready = True
            found.append((0, b""))
        size = relay.HEADER.size
        while self._is_ready and len(self._rest) >= size:
            number, length = relay.HEADER.unpack_from(self._rest)
            if length > relay.CHUNK:
                raise RemoteFailed("invalid data from a sandbox to its model")
            if len(self._rest) < size + length:
                break
            found.append((number, bytes(self._rest[size : size + length])))
            del self._rest[: size + length]
        return found
