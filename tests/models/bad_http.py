"""A provider that sends raw bytes: invalid HTTP, or other data."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from .server import completion

__all__ = [
    "BAD",
    "GOOD",
    "RawProvider",
    "framed",
    "nested_arguments",
    "raw_providing",
    "raw_serving",
]

_JSON: Final = b"content-type: application/json\r\n"


def framed(body: bytes, head: bytes = b"", status: bytes = b"200 OK") -> bytes:
    """Return a valid HTTP response with this body and extra header lines."""
    length = b"content-length: %d\r\n" % len(body)
    return b"HTTP/1.1 " + status + b"\r\n" + _JSON + head + length + b"\r\n" + body


def _chunked(body: bytes, head: bytes = b"transfer-encoding: chunked\r\n") -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + _JSON + head + b"\r\n" + body


def nested_arguments(depth: int) -> dict[str, Any]:
    """Return a reply whose tool call has arguments nested this deep."""
    arguments: Any = "north"
    for _ in range(depth):
        arguments = {"a": arguments}
    call = {"id": "1", "type": "function", "function": {"name": "interact"}}
    call["function"]["arguments"] = arguments  # type: ignore[index]
    return completion({"role": "assistant", "content": None, "tool_calls": [call]})


_BODY: Final = json.dumps(completion()).encode()
GOOD: Final = framed(_BODY)
BAD: Final = {
    "no status line": b"hello there\r\n\r\n",
    "not HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "status that is a word": b"HTTP/1.1 fine OK\r\n\r\n",
    "version 9": b"HTTP/9.9 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    "bad chunk size": _chunked(b"zz\r\n{}\r\n0\r\n\r\n"),
    "negative chunk size": _chunked(b"-5\r\n{}\r\n0\r\n\r\n"),
    "chunk longer than its size": _chunked(b"2\r\n{}{}{}\r\n0\r\n\r\n"),
    "chunks that end early": _chunked(b"400\r\n{}"),
    "two lengths": framed(_BODY, b"content-length: 3\r\n"),
    "length and chunks": framed(_BODY, b"transfer-encoding: chunked\r\n"),
    "length that is a word": b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n{}",
    "negative length": b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n{}",
    "length too long": framed(_BODY)[:-5],
    "header of 10 KB": framed(_BODY, b"x-long: " + b"a" * 10_000 + b"\r\n"),
    "20,000 headers": framed(_BODY, b"x-many: 1\r\n" * 20_000),
    "header without a colon": framed(_BODY, b"no colon here\r\n"),
    "header with a NUL": framed(_BODY, b"x-nul: a\x00b\r\n"),
    "header name with a blank": framed(_BODY, b"x blank: 1\r\n"),
    "gzip that is none": framed(_BODY, b"content-encoding: gzip\r\n"),
    "packed as nobody asked": framed(_BODY, b"content-encoding: zstd\r\n"),
    "nothing at all": b"",
    "101 without an upgrade": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "body that is no UTF-8": framed(b'{"choices": "\xff\xfe"}'),
    "reason that is no text": framed(_BODY, status=b"200 \xff\xfe"),
    "nested 100,000 deep": framed(b'{"choices":' + b"[" * 100_000),
}
"""Answers that are infrastructure's fault, by what is wrong with them."""


@dataclass
class RawProvider:
    """A running provider: sends the responses in `script`, then valid ones."""

    script: list[bytes] = field(default_factory=list)
    asked: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request per connection; one without a body is a connection check."""
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            lengths = [line for line in lines if line.startswith(b"content-length")]
            if lengths:
                await reader.readexactly(int(lengths[0].split(b":")[1]))
                self.asked += 1
                writer.write(self.script.pop(0) if self.script else GOOD)
            else:
                writer.write(framed(b"{}", status=b"404 Not Found"))
            await writer.drain()
        writer.close()


@asynccontextmanager
async def raw_providing(
    script: Sequence[bytes] = (), port: int = 0
) -> AsyncIterator[RawProvider]:
    """A provider with a script, in this event loop."""
    provider = RawProvider(list(script))
    server = await asyncio.start_server(provider.serve, "127.0.0.1", port)
    provider.port = server.sockets[0].getsockname()[1]
    try:
        yield provider
    finally:
        server.close()


@contextmanager
def raw_serving(script: Sequence[bytes] = ()) -> Iterator[RawProvider]:
    """Run the provider in a separate thread."""
    provider, loop = RawProvider(list(script)), asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(provider.serve, "127.0.0.1", 0))
    provider.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
