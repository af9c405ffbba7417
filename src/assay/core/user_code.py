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

_MAX_PRINTED: Final = 4_000
"""Maximum number of printed characters that are forwarded."""
_LIBRARIES: Final = tuple(
    {sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}
    | {f"{Path(__file__).parents[1]}{os.sep}"}
)
"""Folders of code that is not the user's."""
_SLOW_S: Final = 10.0
"""Seconds after which a slow call is reported."""
_THREAD_PREFIX: Final = "assay-"
"""Prefix of the names of assay's threads."""
_current = threading.local()
_user_code_names: list[str] = []
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
        self._hangs = False

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call a function, await its coroutine if it returns one, and return the result."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if not done.done():
                done.set_exception(error) if error else done.set_result(value)

        def report_result(value: Any, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the run has ended, so the result is not needed
                loop.call_soon_threadsafe(settle, value, error)

        self._start_call(function, report_result)
        await self._wait_until_done(done)
        return done.result()

    def wait(self, function: Callable[[], Any], *, slow: Callable[[str], None]) -> Any:
        """Call a function without an event loop; `slow` is called once if it takes long."""
        done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._start_call(function, lambda value, error: done.put((value, error)))
        started = time.monotonic()
        has_reported = False
        while (elapsed := time.monotonic() - started) < self._limit:
            with suppress(Empty):
                value, error = done.get(timeout=min(0.5, self._limit - elapsed))
                if error is not None:
                    raise error
                return value
            if not has_reported and elapsed >= _SLOW_S:
                has_reported = True
                line = self._describe_line()
                slow(f"{self._name} has been running for {elapsed:.0f} s{line}")
        raise self._make_timeout_error()

    def _start_call(
        self,
        function: Callable[[], Any],
        on_result: Callable[[Any, BaseException | None], None],
    ) -> None:
        """Start a call in the thread; `tell` is called with its result or exception."""
        if self._hangs:
            raise UserCodeError(f"{self._name} did not return from an earlier call")

        def run_function() -> None:
            value, failure = None, None
            try:
                value = function()
                if inspect.iscoroutine(value):
                    value = asyncio.run(value)
            except (
                BaseException
            ) as error:  # any exception is a failure of user code, even SystemExit
                failure = self._convert_error(error)
            on_result(value, failure)

        self._waited = 0.0
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run_calls, name=f"{_THREAD_PREFIX}user-{self._name}", daemon=True
            )
            _user_code_names.append(self._name)
            self._thread.start()
        self._calls.put(run_function)

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

    def close(self) -> None:
        """Accept no more calls; the thread ends after the current one."""
        self._calls.put(None)

    async def _wait_until_done(self, done: "asyncio.Future[Any]") -> None:
        started = time.monotonic()
        remaining = self._limit
        while remaining > 0 or self._waiting_since is not None:
            finished, _ = await asyncio.wait({done}, timeout=max(remaining, 0.05))
            if finished:
                return
            remaining = started + self._limit + self._waited - time.monotonic()
        raise self._make_timeout_error()

    def _make_timeout_error(self) -> UserCodeError:
        self._hangs = True
        return UserCodeError(
            f"{self._name} took longer than {self._limit:g} s{self._describe_line()}; "
            f"{self._hint}"
        )

    def _describe_line(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0) if self._thread else None
        line = _find_user_line(traceback.extract_stack(frame)) if frame else ""
        return line and f", at {line}"

    def _run_calls(self) -> None:
        _current.name = self._name
        while (run_function := self._calls.get()) is not None:
            run_function()

    def _convert_error(self, error: BaseException) -> BaseException:
        if isinstance(error, (UserCodeError, HookError)):
            return error
        line = _find_user_line(traceback.extract_tb(error.__traceback__))
        location = line and f"{line}: "
        converted = UserCodeError(
            f"{self._name}: {location}{type(error).__name__}: {read_exception_message(error)}"
        )
        converted.__cause__ = error
        return converted


def _find_user_line(frames: Sequence[traceback.FrameSummary]) -> str:
    """Return the innermost line outside of libraries, such as `mine.py:7`, or ""."""
    user_frames = [
        frame for frame in frames if not frame.filename.startswith((*_LIBRARIES, "<"))
    ]
    return f"{user_frames[-1].filename}:{user_frames[-1].lineno}" if user_frames else ""


def read_exception_message(error: BaseException) -> str:
    """Return the message of an exception of any class."""
    try:
        return str(error)
    except Exception:  # the class may be user-defined
        return "(its message cannot be shown)"


class _UserOutput:
    """A stream that forwards lines of user threads up to a limit, and writes other text."""

    def __init__(self, stream: IO[str], notice: Callable[[str], None]) -> None:
        self._stream, self._notice = stream, notice
        self._remaining: dict[str, int] = {}

    def write(self, text: str) -> int:
        """Forward complete lines of a user thread, or write text of other threads."""
        name = getattr(_current, "name", None)
        if name is None:
            return self._stream.write(text)
        # A print with several arguments arrives in pieces.
        pending: str = getattr(_current, "pending", "") + text[:_MAX_PRINTED]
        *lines, _current.pending = pending.split("\n")
        _current.pending = _current.pending[:_MAX_PRINTED]
        for line in filter(str.strip, lines):
            self._forward(name, line)
        return len(text)

    def _forward(self, name: str, line: str) -> None:
        remaining = self._remaining.setdefault(name, _MAX_PRINTED)
        if remaining <= 0:
            return
        line = mask(line)
        self._remaining[name] = remaining - len(line)
        _current.name = None  # the callback may print the line
        try:
            self._notice(f"{name} printed: {line[:remaining]}")
            if self._remaining[name] <= 0:
                self._notice(f"{name} printed more, which is not shown")
        finally:
            _current.name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def forbid_exit(name: str | None = None) -> Iterator[None]:
    """Make `os._exit` raise in user code: in user threads, or in this thread with `name`.

    Args:
        name: Name of the user code that this thread runs meanwhile; None if it runs none.
    """
    original_exit, outer_name = os._exit, getattr(_current, "name", None)

    def raise_in_user_code(status: int) -> None:
        if getattr(_current, "name", None) is None:
            original_exit(status)
        raise SystemExit(status)

    if name is not None:
        _user_code_names.append(name)
        _current.name = name
    os._exit = raise_in_user_code  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit, _current.name = original_exit, outer_name


@contextmanager
def contain_user_code(notice: Callable[[str], None]) -> Iterator[None]:
    """Prevent user threads from printing over a display and from ending the process."""
    if isinstance(sys.stdout, _UserOutput):
        yield  # they are contained already
        return
    streams = sys.stdout, sys.stderr
    before = {*threading.enumerate()}
    sys.stdout, sys.stderr = (_UserOutput(stream, notice) for stream in streams)
    try:
        with forbid_exit():
            yield
    finally:
        sys.stdout, sys.stderr = streams
        new_threads = [thread for thread in threading.enumerate() if thread not in before]
        user_threads = [
            thread.name for thread in new_threads if not thread.name.startswith(_THREAD_PREFIX)
        ]
        if user_threads and _user_code_names:
            notice(
                f"{len(user_threads)} threads started by user code are still running, such as "
                f"{user_threads[0]}; they are abandoned"
            )


def has_user_threads() -> bool:
    """Return whether user code left threads running, which would keep the process alive."""
    return bool(_user_code_names) and threading.active_count() > 1


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


def run_user_file(path: Path, noun: str) -> UserCode:
    """Run a file; `noun` is a plural noun for the objects it should define."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {noun} from {str(path)!r}: {error.strerror or error}; "
            f"give a Python file that defines {noun}"
        ) from error
    sha = content_hash(source)
    module = _run_module(path, _compile(path, source), noun, f"assay_{noun}_{sha}")
    return UserCode(vars(module), sha)


def find_line(error: BaseException, path: str) -> int | None:
    """Return the last line of a file in the traceback of an error, if any."""
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return next((line for line in reversed(lines) if line), None)


def _print_to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def _compile(path: Path, source: bytes) -> CodeType:
    try:
        return compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        location = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise UsageError(f"{location}: not valid Python: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not valid Python: {error}") from error


def _run_module(path: Path, code: CodeType, noun: str, name: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path)
    # Dataclasses and pickle look up the module of a class by name.
    sys.modules[name] = module
    working_directory = os.getcwd()
    try:
        with contain_user_code(_print_to_stderr), forbid_exit(path.name):
            exec(code, module.__dict__)
    except KeyboardInterrupt as error:
        # After Ctrl-C, or if the file raised it, the user should see which line was running.
        location = f"{path}:{find_line(error, str(path)) or 1}"
        _print_to_stderr(f"interrupted at {location}, while its {noun} were loaded")
        raise
    except BaseException as error:
        del sys.modules[name]
        location = f"{path}:{find_line(error, str(path)) or 1}"
        if isinstance(error, UsageError):
            raise UsageError(f"{location}: {error}") from error
        description = f"{type(error).__name__} while its {noun} were loaded: {error}"
        raise UsageError(f"{location}: {description}") from error
    finally:
        os.chdir(working_directory)
    return module
