"""User code: loading of Python files, and calls with time limits during a run.

Running a file has the effects of an import. A problem with it is a UsageError that names the
file, the line and what is expected.

Calls during a run are made in a separate thread. An exception in them, including `sys.exit`, is
a UserCodeError with file and line. A call that takes too long is abandoned in its daemon
thread, which does not keep the process alive. Printed text is forwarded, up to a limit.
`os._exit` would end the run without a message, so it raises instead.
"""

import asyncio
import inspect
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import CodeType, ModuleType
from typing import IO, Any, Final, NamedTuple

from assay.core.canonical_json import content_hash
from assay.core.secrets import mask
from assay.errors import HookError, UsageError, UserCodeError

_PRINTED: Final = 4_000
"""Maximum number of printed characters that are forwarded."""
_LIBRARIES: Final = tuple(
    {sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}
    | {f"{Path(__file__).parents[1]}{os.sep}"}
)
"""Folders of code that is not the user's."""
_SLOW_S: Final = 10.0
"""Seconds after which a slow call is reported."""
_OURS: Final = "assay-"
"""Prefix of the names of assay's threads."""
_ours = threading.local()
_started: list[str] = []
"""Names of the user code that this process has run."""


class UserThread:
    """A daemon thread that calls one user object, one call at a time."""

    def __init__(
        self, name: str, limit_s: float, *, hint: str = "--decision-limit allows more"
    ) -> None:
        """Set the name for messages, the time limit of a call, and the hint about the limit."""
        self._name, self._limit, self._hint = name, limit_s, hint
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._waited = 0.0
        self._waiting_since: float | None = None
        self._waits = 0
        self._lost = False

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call a function, await its coroutine if it returns one, and return the result."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if not done.done():
                done.set_exception(error) if error else done.set_result(value)

        def tell(value: Any, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the run has ended, so the result is not needed
                loop.call_soon_threadsafe(settle, value, error)

        self._begin(function, tell)
        await self._within_limit(done)
        return done.result()

    def wait(self, function: Callable[[], Any], *, slow: Callable[[str], None]) -> Any:
        """Call a function without an event loop; `slow` is called once if it takes long."""
        done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._begin(function, lambda value, error: done.put((value, error)))
        started = time.monotonic()
        told = False
        while (taken := time.monotonic() - started) < self._limit:
            with suppress(Empty):
                value, error = done.get(timeout=min(0.5, self._limit - taken))
                if error is not None:
                    raise error
                return value
            if not told and taken >= _SLOW_S:
                told = True
                slow(f"{self._name} has been running for {taken:.0f} s{self._where()}")
        raise self._too_long()

    def _begin(
        self,
        function: Callable[[], Any],
        tell: Callable[[Any, BaseException | None], None],
    ) -> None:
        """Start a call in the thread; `tell` is called with its result or exception."""
        if self._lost:
            raise UserCodeError(f"{self._name} hangs in an earlier call")

        def body() -> None:
            value, failure = None, None
            try:
                value = function()
                if inspect.iscoroutine(value):
                    value = asyncio.run(value)
            except (
                BaseException
            ) as error:  # any exception is a failure of user code, even SystemExit
                failure = self._failed(error)
            tell(value, failure)

        self._waited = 0.0
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name=f"{_OURS}user-{self._name}", daemon=True
            )
            _started.append(self._name)
            self._thread.start()
        self._calls.put(body)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Exclude the time in which user code waits for the run from its time limit."""
        if not self._waits:
            self._waiting_since = time.monotonic()
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits and self._waiting_since is not None:
                self._waited += time.monotonic() - self._waiting_since
                self._waiting_since = None

    def leave(self) -> None:
        """Accept no more calls; the thread ends after the current one."""
        self._calls.put(None)

    async def _within_limit(self, done: "asyncio.Future[Any]") -> None:
        started = time.monotonic()
        left = self._limit
        while left > 0 or self._waiting_since is not None:
            finished, _ = await asyncio.wait({done}, timeout=max(left, 0.05))
            if finished:
                return
            left = started + self._limit + self._waited - time.monotonic()
        raise self._too_long()

    def _too_long(self) -> UserCodeError:
        self._lost = True
        return UserCodeError(
            f"{self._name} took longer than {self._limit:g} s{self._where()}; {self._hint}"
        )

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0) if self._thread else None
        line = _line_of(traceback.extract_stack(frame)) if frame else ""
        return line and f", at {line}"

    def _work(self) -> None:
        _ours.name = self._name
        while (body := self._calls.get()) is not None:
            body()

    def _failed(self, error: BaseException) -> BaseException:
        if isinstance(error, (UserCodeError, HookError)):
            return error
        line = _line_of(traceback.extract_tb(error.__traceback__))
        where = line and f"{line}: "
        failed = UserCodeError(
            f"{self._name}: {where}{type(error).__name__}: {exception_text(error)}"
        )
        failed.__cause__ = error
        return failed


def _line_of(frames: Sequence[traceback.FrameSummary]) -> str:
    """Return the innermost line outside of libraries, such as `mine.py:7`, or ""."""
    own = [frame for frame in frames if not frame.filename.startswith((*_LIBRARIES, "<"))]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def exception_text(error: BaseException) -> str:
    """Return the message of an exception of any class."""
    try:
        return str(error)
    except Exception:
        return "(its message could not be made)"


class _Printed:
    """A stream that forwards lines of user threads up to a limit, and writes other text."""

    def __init__(self, stream: IO[str], notice: Callable[[str], None]) -> None:
        self._stream, self._notice = stream, notice
        self._left: dict[str, int] = {}

    def write(self, text: str) -> int:
        """Forward complete lines of a user thread, or write text of other threads."""
        name = getattr(_ours, "name", None)
        if name is None:
            return self._stream.write(text)
        # A print with several arguments arrives in pieces.
        pending: str = getattr(_ours, "pending", "") + text[:_PRINTED]
        *lines, _ours.pending = pending.split("\n")
        _ours.pending = _ours.pending[:_PRINTED]
        for line in filter(str.strip, lines):
            self._tell(name, line)
        return len(text)

    def _tell(self, name: str, line: str) -> None:
        left = self._left.setdefault(name, _PRINTED)
        if left <= 0:
            return
        line = mask(line)
        self._left[name] = left - len(line)
        _ours.name = None  # the callback may print the line
        try:
            self._notice(f"{name} prints: {line[:left]}")
            if self._left[name] <= 0:
                self._notice(f"{name} prints more, which is not shown")
        finally:
            _ours.name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def no_exit(who: str | None = None) -> Iterator[None]:
    """Make `os._exit` raise in user code: in user threads, or in this thread with `who`.

    Args:
        who: Name of the user code that this thread runs meanwhile; None if it runs none.
    """
    leave, before = os._exit, getattr(_ours, "name", None)

    def refuse(status: int) -> None:
        if getattr(_ours, "name", None) is None:
            leave(status)
        raise SystemExit(status)

    if who is not None:
        _started.append(who)
        _ours.name = who
    os._exit = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit, _ours.name = leave, before


@contextmanager
def contained(notice: Callable[[str], None]) -> Iterator[None]:
    """Prevent user threads from printing over a display and from ending the process."""
    if isinstance(sys.stdout, _Printed):
        yield  # they are contained already
        return
    streams = sys.stdout, sys.stderr
    before = {*threading.enumerate()}
    sys.stdout, sys.stderr = (_Printed(stream, notice) for stream in streams)
    try:
        with no_exit():
            yield
    finally:
        sys.stdout, sys.stderr = streams
        left = [thread for thread in threading.enumerate() if thread not in before]
        theirs = [thread.name for thread in left if not thread.name.startswith(_OURS)]
        if theirs and _started:
            notice(
                f"{len(theirs)} threads that user code has started are still running, such as "
                f"{theirs[0]}; nobody waits for them"
            )


def user_threads_left() -> bool:
    """Return whether user code left threads running, which would keep the process alive."""
    return bool(_started) and threading.active_count() > 1


class UserCode(NamedTuple):
    """Content of a user file that was run."""

    names: Mapping[str, object]
    """Top-level names of the file, in the order of definition."""
    sha: str
    """Hash of its text."""

    @property
    def values(self) -> tuple[object, ...]:
        """The objects that the file defines, each once."""
        # An object may have two names, and not all objects are hashable.
        return tuple({id(value): value for value in self.names.values()}.values())


class ObjectSpec(NamedTuple):
    """An object in a user file, written as `file.py:name`."""

    path: Path
    name: str


def parse_object_spec(text: str) -> ObjectSpec | None:
    """Return the file and the name in `file.py:name`; None for a text of another form."""
    path, colon, name = text.rpartition(":")
    if not (colon and path.endswith(".py") and name.isidentifier()):
        return None
    return ObjectSpec(Path(path), name)


def run_user_file(path: Path, what: str) -> UserCode:
    """Run a file; `what` is a plural noun for the objects it should define."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {what} from {str(path)!r}: {error.strerror or error}; "
            f"give a Python file that has {what}"
        ) from error
    sha = content_hash(source)
    module = _run(path, _compiled(path, source), what, f"assay_{what}_{sha}")
    return UserCode(vars(module), sha)


def line_in(error: BaseException, path: str) -> int | None:
    """Return the last line of a file in the traceback of an error, if any."""
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return next((line for line in reversed(lines) if line), None)


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def _compiled(path: Path, source: bytes) -> CodeType:
    try:
        return compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise UsageError(f"{where}: not valid Python: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not valid Python: {error}") from error


def _run(path: Path, code: CodeType, what: str, name: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path)
    # Dataclasses and pickle look up the module of a class by name.
    sys.modules[name] = module
    here = os.getcwd()
    try:
        with contained(_print), no_exit(path.name):
            exec(code, module.__dict__)
    except KeyboardInterrupt as error:
        # After Ctrl-C, or if the file raised it, the user should see which line was running.
        where = f"{path}:{line_in(error, str(path)) or 1}"
        _print(f"interrupted at {where}, while its {what} were loaded")
        raise
    except BaseException as error:
        del sys.modules[name]
        where = f"{path}:{line_in(error, str(path)) or 1}"
        if isinstance(error, UsageError):
            raise UsageError(f"{where}: {error}") from error
        words = f"{type(error).__name__} while its {what} were loaded: {error}"
        raise UsageError(f"{where}: {words}") from error
    finally:
        os.chdir(here)
    return module
