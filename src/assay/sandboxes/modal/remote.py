"""Use of Modal's client: the account, and programs in a sandbox.

Errors of the client and the service become SandboxUnavailable with their message.
"""

import asyncio
import io
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import BinaryIO, Final, TypeAlias

import modal
from modal.container_process import ContainerProcess

from assay.core.secrets import mask
from assay.core.text import cut, printable
from assay.errors import SandboxUnavailable
from assay.sandboxes.modal.names import TOKEN
from assay.sandboxes.procfs import BoundedOutput

_CHUNK: Final = 2**20
"""Bytes of standard input per request; the client stores at most twice as many."""
_TIMED_OUT: Final = -1
"""Exit code that the client reports after a timeout."""
_MAX_OUTPUT: Final = 16 * 2**20
_ANSWER_S: Final = 20.0
"""For requests that require no work."""
_TIMEOUT_S: Final = 600
"""For our programs, which at most copy files."""


Take: TypeAlias = Callable[[bytes], object]
"""Consumes output of a program."""


@contextmanager
def convert_errors() -> Iterator[None]:
    """Convert errors of the client to SandboxUnavailable."""
    try:
        yield
    except SandboxUnavailable:
        raise
    except modal.exception.AuthError as error:
        message = f"Modal rejects the token ({_format_error(error)}); set another: {TOKEN}"
        raise SandboxUnavailable(message) from error
    except (modal.exception.Error, OSError) as error:
        raise SandboxUnavailable(f"Modal: {_format_error(error)}") from error


def _format_error(error: BaseException) -> str:
    return cut(printable(mask(str(error)).strip() or type(error).__name__), 600)


async def check_account() -> None:
    """Check that the service accepts the token.

    Raises:
        SandboxUnavailable: It does not, or it is unreachable.
    """
    try:
        async with asyncio.timeout(_ANSWER_S):
            with convert_errors():
                client = await modal.Client.from_env.aio()
                await client.hello.aio()  # type: ignore[no-untyped-call]
    except TimeoutError as error:
        url = modal.config.config.get("server_url")
        raise SandboxUnavailable(f"Modal does not answer at {url}; try again later") from error


class RemoteFailed(SandboxUnavailable):
    """One of our programs failed in a sandbox, perhaps because of a command."""


class PrintedTooMuch(RemoteFailed):
    """A program printed more than expected."""


def limit_bytes(take: Take, most: int) -> Take:
    """Limit the bytes passed to `take`; raise PrintedTooMuch beyond."""
    left = most

    def count(chunk: bytes) -> None:
        nonlocal left
        left -= len(chunk)
        if left < 0:
            raise PrintedTooMuch(
                f"a program in a Modal sandbox printed more than {most:,} bytes"
            )
        take(chunk)

    return count


class Remote:
    """Runs our programs in a Modal sandbox, as root."""

    def __init__(self, sandbox: modal.Sandbox) -> None:
        self._sandbox = sandbox

    async def start(
        self,
        *argv: str,
        timeout_s: float = _TIMEOUT_S,
        workdir: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ContainerProcess[bytes]:
        """Start a program; it ends after its timeout, even if assay is gone."""
        with convert_errors():
            return await self._sandbox.exec.aio(
                *argv,
                timeout=math.ceil(timeout_s),
                workdir=workdir,
                env=dict(environment or {}),
                text=False,
            )

    async def call(
        self,
        script: str,
        *arguments: str,
        stdin: BinaryIO | None = None,
        take: Take | None = None,
    ) -> bytes:
        """Run a shell script until it ends; return its output, unless `take` consumes it.

        Raises:
            RemoteFailed: It failed; with its error output.
            SandboxUnavailable: It could not be started or followed.
        """
        process = await self.start("/bin/sh", "-c", script, "assay", *arguments)
        printed, errors = io.BytesIO(), BoundedOutput()
        take = take or limit_bytes(printed.write, _MAX_OUTPUT)
        async with feed_stdin(process, stdin or io.BytesIO()):
            await asyncio.gather(drain(process.stdout, take), drain(process.stderr, errors.add))
            with convert_errors():
                code = await process.wait.aio()
        if code == _TIMED_OUT:
            raise SandboxUnavailable(
                f"a program in a Modal sandbox did not end in {_TIMEOUT_S} s"
            )
        if code != 0:
            text = cut(errors.content().decode(errors="replace").strip(), 300)
            raise RemoteFailed(
                f"a program in a Modal sandbox failed (exit code {code}): {text}"
            )
        return printed.getvalue()

    async def is_broken(self, error: SandboxUnavailable) -> bool:
        """Return whether an error occurred because the sandbox lost programs needed here."""
        if isinstance(error, RemoteFailed):
            return True
        try:
            await self.call("true")
        except SandboxUnavailable:
            with convert_errors():  # it runs, but has no shell
                return await self._sandbox.poll.aio() is None
        return False


async def drain(stream: AsyncIterable[bytes], take: Take) -> None:
    """Consume the output of a program until the stream ends."""
    with convert_errors():
        async for chunk in stream:
            take(chunk)


@asynccontextmanager
async def feed_stdin(process: ContainerProcess[bytes], source: BinaryIO) -> AsyncIterator[None]:
    """Send standard input during the block; the program may end before reading all of it."""

    async def feed() -> None:
        with suppress(modal.exception.Error, OSError):
            while chunk := source.read(_CHUNK):
                process.stdin.write(chunk)
                await process.stdin.drain.aio()
            process.stdin.write_eof()
            await process.stdin.drain.aio()

    task = asyncio.ensure_future(feed())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
