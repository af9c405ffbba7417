"""HTTP client of the Docker engine, over its Unix socket.

It handles requests, streams and their errors, independent of sandboxes. If the engine rejects a
request or does not respond, SandboxUnavailable is raised with its message.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from assay.core.text import cut, printable
from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.procfs import BoundedOutput

_VARIABLE: Final = "DOCKER_HOST"
_DEFAULT: Final = "/var/run/docker.sock"
_VERSION: Final = "/v1.41"
"""API version; supported since Docker 20.10."""
START: Final = (
    "install and start Docker: sudo apt install docker.io (Debian, Ubuntu), "
    "sudo systemctl start docker; be in the group docker, or name another engine with DOCKER_HOST=unix:///path/to/socket"
)
_HEADER: Final = 8
"""Bytes before each piece of a stream: the kind of output, three zeros, the length."""
_TIMEOUT_S: Final = 60.0
"""For requests that require no work."""


def engine_socket() -> str:
    """Return the socket of the engine: `$DOCKER_HOST`, or Docker's default.

    Raises:
        UsageError: `$DOCKER_HOST` is not a Unix socket.
    """
    host = os.environ.get(_VARIABLE)
    if not host:
        return _DEFAULT
    scheme, _, path = host.partition("://")
    if scheme != "unix" or not path.startswith("/"):
        raise UsageError(
            f"${_VARIABLE} is {host!r}, and only an engine on this machine can be used: "
            "unix:///path/to/socket"
        )
    return path


class EngineRefused(SandboxUnavailable):
    """The engine rejected a request."""

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.status = status


class EngineStream:
    """The streams of an attached process; its output is collected in `output`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.output = BoundedOutput()
        self._reader, self._writer = reader, writer

    async def send_stdin(self, stdin: bytes) -> None:
        """Send all of standard input; the process may end before reading it."""
        try:
            self._writer.write(stdin)
            await self._writer.drain()
            self._writer.write_eof()
        except OSError:
            return

    async def collect_output(self) -> None:
        """Collect the output until the stream ends."""
        try:
            while True:
                header = await self._reader.readexactly(_HEADER)
                left = int.from_bytes(header[4:], "big")
                while left:
                    chunk = await self._reader.read(min(left, 2**18))
                    if not chunk:
                        return
                    self.output.add(chunk)
                    left -= len(chunk)
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def close(self) -> None:
        """Close the connection; the process sees the end of its standard input."""
        self._writer.close()


class DockerEngine:
    """A connection to the engine, for one event loop."""

    def __init__(self, socket: str, session: aiohttp.ClientSession) -> None:
        self.socket = socket
        self._session = session

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[Self]:
        """Connect to the engine of this machine; errors are raised by the first call."""
        socket = engine_socket()
        async with aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(socket, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT_S),
        ) as session:
            yield cls(socket, session)

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        accept: tuple[int, ...] = (),
    ) -> Any:
        """Send a request; return the response, None if empty or with a status in `accept`.

        Raises:
            SandboxUnavailable: It is rejected, or not answered in time.
        """
        with self._convert_errors():
            async with (
                asyncio.timeout(_TIMEOUT_S),
                self._session.request(
                    method, self._url(path), params=query, json=body
                ) as response,
            ):
                text = await response.read()
                if response.status in accept:
                    return None
                self._check(response.status, text, f"{method} {path}")
                return json.loads(text) if text.strip() else None

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        file: Path,
    ) -> list[dict[str, Any]]:
        """Send a tar file; return the JSON lines of the response."""
        headers = {"Content-Type": "application/x-tar"}
        with file.open("rb") as content, self._convert_errors():
            async with self._session.request(
                method, self._url(path), params=query, data=content, headers=headers
            ) as response:
                text = await response.read()
                self._check(response.status, text, f"{method} {path}")
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    async def fetch(self, path: str, target: Path, *, query: Mapping[str, str]) -> None:
        """Write the response to a file."""
        with target.open("wb") as file, self._convert_errors():
            async with self._session.get(self._url(path), params=query) as response:
                if response.status >= 400:
                    self._check(response.status, await response.read(), f"GET {path}")
                async for chunk in response.content.iter_chunked(2**18):
                    file.write(chunk)

    async def attach(self, path: str, body: Any = None) -> EngineStream:
        """Attach to the streams of a process, with a connection upgraded from HTTP."""
        content = json.dumps(body if body is not None else {}).encode()
        with self._convert_errors():
            reader, writer = await asyncio.open_unix_connection(self.socket)
            try:
                writer.write(
                    f"POST {_VERSION}{path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\n"
                    "Upgrade: tcp\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(content)}\r\n\r\n".encode()
                    + content
                )
                await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
                status = int(head.split(b" ", 2)[1])
                if status != 101:
                    rest = await asyncio.wait_for(reader.read(4096), _TIMEOUT_S)
                    self._check(max(status, 400), rest, f"POST {path}")
            except BaseException:
                writer.close()
                raise
        return EngineStream(reader, writer)

    def _url(self, path: str) -> str:
        return f"http://docker{_VERSION}{path}"

    def _check(self, status: int, text: bytes, request: str) -> None:
        if status < 400:
            return
        try:
            message = json.loads(text)["message"]
        except (ValueError, KeyError, TypeError):
            message = text.decode(errors="replace")
        reason = cut(printable(message.strip()), 600)
        raise EngineRefused(f"Docker's engine refused {request} ({status}): {reason}", status)

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Convert connection errors to SandboxUnavailable."""
        try:
            yield
        except SandboxUnavailable:
            raise
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise self._make_error(error) from error

    def _make_error(self, error: BaseException) -> SandboxUnavailable:
        if isinstance(error, TimeoutError):
            return SandboxUnavailable(
                f"Docker's engine at {self.socket} does not answer in time"
            )
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return SandboxUnavailable(
            f"no engine of Docker answers at {self.socket} ({reason}); {START}"
        )
