"""Unix sockets of this machine for a sandbox on another one, through `relay.py` there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import modal
from modal.container_process import ContainerProcess

from assay.errors import SandboxUnavailable
from assay.sandboxes.modal import relay
from assay.sandboxes.modal.remote import Remote, RemoteFailed, answering

_SCRIPT: Final = Path(relay.__file__)
_PATIENCE_S: Final = 30.0
_MOST_WAITING: Final = 2048
"""Pieces that wait for a socket which does not take them, before its connection is cut."""


@asynccontextmanager
async def relayed(
    remote: Remote, socket: Path, target: str, timeout_s: float
) -> AsyncIterator[None]:
    """Let programs of a sandbox reach a socket of this machine, for as long as the block takes.

    Args:
        remote: The sandbox, which must have python3.
        socket: The one of this machine.
        target: Where the sandbox has it.
        timeout_s: When it ends there, whatever becomes of assay.
    """
    process = await remote.start(
        "python3", "-I", "-c", _SCRIPT.read_text("utf-8"), target, timeout_s=timeout_s
    )
    relaying = _Relay(process, socket)
    task = asyncio.ensure_future(relaying.run())
    try:
        await asyncio.wait(
            {task, relaying.ready}, timeout=_PATIENCE_S, return_when="FIRST_COMPLETED"
        )
        if not relaying.ready.done():
            raise SandboxUnavailable(
                "the sandbox cannot reach the model of its agent: python3 does not start there"
            )
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await relaying.end()


class _Talk(NamedTuple):
    """One connection."""

    task: "asyncio.Task[None]"
    queue: "asyncio.Queue[bytes]"
    """What the socket of this machine has not taken yet."""


class _Relay:
    """This machine's end of a relay."""

    def __init__(self, process: ContainerProcess[bytes], socket: Path) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._process, self._socket = process, socket
        self._turn = asyncio.Lock()
        self._talks: dict[int, _Talk] = {}
        self._ended: set[int] = set()

    async def run(self) -> None:
        """Take pieces until the sandbox sends no more."""
        pieces = _Pieces()
        async for chunk in self._process.stdout:
            for number, content in pieces.add(chunk):
                if not self.ready.done():
                    self.ready.set_result(None)
                if number:
                    self._take(number, content)

    def _take(self, number: int, content: bytes) -> None:
        if number in self._ended:
            return
        if number not in self._talks:
            queue = asyncio.Queue[bytes]()
            task = asyncio.ensure_future(self._talk(number, queue))
            task.add_done_callback(lambda _: self._forget(number))
            self._talks[number] = _Talk(task, queue)
        talk = self._talks[number]
        talk.queue.put_nowait(content)
        if talk.queue.qsize() > _MOST_WAITING:
            talk.task.cancel()

    def _forget(self, number: int) -> None:
        del self._talks[number]
        self._ended.add(number)

    async def _talk(self, number: int, queue: "asyncio.Queue[bytes]") -> None:
        """One connection, from its first byte to its last."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket))
        except OSError:
            await self._send(number, b"")
            return
        there = asyncio.ensure_future(self._hand_over(queue, writer))
        try:
            with suppress(ConnectionError):
                while chunk := await reader.read(relay.CHUNK):
                    await self._send(number, chunk)
            await self._send(number, b"")
        finally:
            there.cancel()
            writer.close()

    async def _hand_over(
        self, queue: "asyncio.Queue[bytes]", writer: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            while content := await queue.get():
                writer.write(content)
                await writer.drain()
            writer.write_eof()

    async def _send(self, number: int, content: bytes) -> None:
        async with self._turn:
            with suppress(modal.exception.Error):  # nobody is there any more
                self._process.stdin.write(relay.piece(number, content))
                await self._process.stdin.drain.aio()

    async def end(self) -> None:
        """Let the program in the sandbox end, and wait for it."""
        for talk in list(self._talks.values()):
            talk.task.cancel()
        with suppress(SandboxUnavailable), answering():
            self._process.stdin.write_eof()
            await self._process.stdin.drain.aio()
            await asyncio.wait_for(self._process.wait.aio(), _PATIENCE_S)


class _Pieces:
    """Puts together what a stream cut apart; its first line is number 0."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_ready = False

    def add(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """Take the next bytes; the pieces that are whole with them."""
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
                raise RemoteFailed("what a sandbox sends to its model cannot be read")
            if len(self._rest) < size + length:
                break
            found.append((number, bytes(self._rest[size : size + length])))
            del self._rest[: size + length]
        return found
