"""What assay asks of Modal's client: an account, and programs of ours in a sandbox.

Whatever the client or the service says no to is SandboxUnavailable, in their words.
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
"""Bytes of standard input in one request: the client holds no more than twice that."""
_NO_END: Final = -1
"""What the client says of a program whose time is over."""
_MOST_PRINTED: Final = 16 * 2**20
_ANSWER_S: Final = 20.0
"""For an answer that takes no work."""
_PATIENCE_S: Final = 600
"""For programs of ours, which move files at most."""


Take: TypeAlias = Callable[[bytes], object]
"""Takes the next bytes that a program prints."""


@contextmanager
def answering() -> Iterator[None]:
    """Where errors of the client become ours."""
    try:
        yield
    except SandboxUnavailable:
        raise
    except modal.exception.AuthError as error:
        said = f"Modal does not take the token ({_said(error)}); set another: {TOKEN}"
        raise SandboxUnavailable(said) from error
    except (modal.exception.Error, OSError) as error:
        raise SandboxUnavailable(f"Modal: {_said(error)}") from error


def _said(error: BaseException) -> str:
    return cut(printable(mask(str(error)).strip() or type(error).__name__), 600)


async def check_account() -> None:
    """See whether the service takes the token.

    Raises:
        SandboxUnavailable: It does not, or cannot be reached.
    """
    try:
        async with asyncio.timeout(_ANSWER_S):
            with answering():
                client = await modal.Client.from_env.aio()
                await client.hello.aio()  # type: ignore[no-untyped-call]
    except TimeoutError as error:
        url = modal.config.config.get("server_url")
        raise SandboxUnavailable(f"Modal does not answer at {url}; try again later") from error


class RemoteFailed(SandboxUnavailable):
    """A program of ours ran in a sandbox and failed there: a command may have seen to that."""


class PrintedTooMuch(RemoteFailed):
    """A program printed more than it can have to say."""


def bounded(take: Take, most: int) -> Take:
    """Take no more than so many bytes; PrintedTooMuch beyond."""
    left = most

    def count(chunk: bytes) -> None:
        nonlocal left
        left -= len(chunk)
        if left < 0:
            raise PrintedTooMuch(
                f"a program in a sandbox of Modal printed more than {most:,} bytes"
            )
        take(chunk)

    return count


class Remote:
    """Programs of ours in a sandbox of Modal, where they are root."""

    def __init__(self, sandbox: modal.Sandbox) -> None:
        self._sandbox = sandbox

    async def start(
        self,
        *argv: str,
        timeout_s: float = _PATIENCE_S,
        workdir: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ContainerProcess[bytes]:
        """Start a program; it ends with its time, whatever becomes of assay."""
        with answering():
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
        """Run a script of the shell to its end; what it printed, unless somebody takes it.

        Raises:
            RemoteFailed: It failed, with what it said.
            SandboxUnavailable: It could not be started or followed.
        """
        process = await self.start("/bin/sh", "-c", script, "assay", *arguments)
        printed, said = io.BytesIO(), BoundedOutput()
        take = take or bounded(printed.write, _MOST_PRINTED)
        async with feeding(process, stdin or io.BytesIO()):
            await asyncio.gather(drain(process.stdout, take), drain(process.stderr, said.add))
            with answering():
                code = await process.wait.aio()
        if code == _NO_END:
            raise SandboxUnavailable(
                f"a program in a sandbox of Modal did not end in {_PATIENCE_S} s"
            )
        if code != 0:
            text = cut(said.kept().decode(errors="replace").strip(), 300)
            raise RemoteFailed(
                f"a sandbox of Modal could not be used (exit code {code}): {text}"
            )
        return printed.getvalue()

    async def is_broken(self, error: SandboxUnavailable) -> bool:
        """Whether an error came because the sandbox lost the programs that are used here."""
        if isinstance(error, RemoteFailed):
            return True
        try:
            await self.call("true")
        except SandboxUnavailable:
            with answering():  # it runs, and yet has no shell
                return await self._sandbox.poll.aio() is None
        return False


async def drain(stream: AsyncIterable[bytes], take: Take) -> None:
    """Take all that a program prints, until nobody can print any more."""
    with answering():
        async for chunk in stream:
            take(chunk)


@asynccontextmanager
async def feeding(process: ContainerProcess[bytes], source: BinaryIO) -> AsyncIterator[None]:
    """Meanwhile send all of standard input; one who does not read it to its end is no fault."""

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
