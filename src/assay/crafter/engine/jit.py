"""Compiling the engine with numba, once per machine.

A function marked `@kernel` is a piece of the engine, a function marked `@entry` is
called from Python. Both state their types once, as annotations. Nothing is compiled
when a module is imported: `load` either reads the entries from the user's cache
folder or compiles everything into a new folder there and renames it into place, so
that a folder with the final name is always complete, whoever else starts at the same
time. A folder whose files do not match their recorded hashes is thrown away.

Compiled code works on raw pointers. With NUMBA_BOUNDSCHECK=1 in the environment the
same source is compiled over bounds-checked arrays instead: slow, and for tests. There a
negative index is an error too.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
import types as python_types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar, get_type_hints

import llvmlite
import numba
import numpy as np
from numba import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numba.np import arrayobj
from numpy.typing import NDArray
from platformdirs import user_cache_path

from assay.errors import UsageError

CHECKED: Final = bool(numba.config.BOUNDSCHECK)
"""Whether kernels are compiled over bounds-checked arrays instead of pointers."""

_log = logging.getLogger("assay.crafter")


class Ints(Protocol):
    """A run of integers in memory, as kernels see it; of any width."""

    def __getitem__(self, index: int) -> int: ...

    def __setitem__(self, index: int, value: int) -> None: ...


class Reals(Protocol):
    """A run of 64-bit floats in memory, as kernels see it."""

    def __getitem__(self, index: int) -> float: ...

    def __setitem__(self, index: int, value: float) -> None: ...


class CompileReport(NamedTuple):
    """What `load` did."""

    compiled: bool
    """Whether the engine had to be compiled; else it was read from the cache."""
    seconds: float
    """How long that took."""
    directory: Path | None
    """Where the compiled engine is kept; None if no folder could be written to."""


Function = TypeVar("Function", bound=Callable[..., Any])

_numba_types: dict[Any, Any] = {
    int: types.int64,
    float: types.float64,
    bool: types.boolean,
    np.uint64: types.uint64,
    python_types.NoneType: types.none,
}
_kernels: list[tuple[Any, Any]] = []
_entries: list[tuple[Any, Any]] = []
_tables: dict[str, Callable[[], Mapping[str, NDArray[Any]]]] = {}
_arrays: dict[str, Mapping[str, NDArray[Any]]] = {}
_lock = threading.Lock()
_report: CompileReport | None = None


if CHECKED:

    def _as_it_is(context: Any, builder: Any, index_type: Any, index: Any, size: Any) -> Any:
        del size
        native = types.intp if index_type.signed else types.uintp
        return context.cast(builder, index, index_type, native)

    # numba counts negative indices from the end, as Python does, before it checks them.
    arrayobj.fix_integer_index = _as_it_is


def register(annotation: Any, numba_type: Any) -> None:
    """Say which numba type an annotation of kernels stands for."""
    _numba_types[annotation] = numba_type


def pointer(dtype: str) -> tuple[Any, Any]:
    """The numba type of a run of `dtype` values, and a kernel (address, count) -> run."""
    element = getattr(types, dtype)

    @intrinsic  # type: ignore[untyped-decorator]
    def raw(typing_context: Any, address: Any) -> Any:
        del typing_context, address

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(element)(types.int64), generate

    if CHECKED:
        carray = numba.carray

        def at(address: int, count: int) -> Any:
            return carray(raw(address), count)

        run: Any = types.Array(element, 1, "C")
    else:

        def at(address: int, count: int) -> Any:
            return raw(address)

        run = types.CPointer(element)
    return run, numba.njit(at, forceinline=True)


def kernel(function: Function) -> Function:
    """Mark a piece of the engine; its annotations become its compiled signature."""
    return _piece(function, forceinline=False)


def inlined(function: Function) -> Function:
    """Mark a small piece of the engine that is worth a copy at every place of use."""
    return _piece(function, forceinline=True)


def entry(function: Function) -> Function:
    """Mark a function of the engine that Python calls."""
    return _entry(function, nogil=False)


def threaded_entry(function: Function) -> Function:
    """Mark one that is called from several threads at once; it lets go of the GIL."""
    return _entry(function, nogil=True)


def _entry(function: Function, *, nogil: bool) -> Function:
    dispatcher = numba.njit(function, nogil=nogil)
    _entries.append((dispatcher, _signature(function)))
    return dispatcher  # type: ignore[no-any-return]


def _piece(function: Function, *, forceinline: bool) -> Function:
    dispatcher = numba.njit(function, forceinline=forceinline, no_cpython_wrapper=True)
    # Without an explicit signature numba compiles a copy per width of its arguments.
    _kernels.append((dispatcher, _signature(function)))
    return dispatcher  # type: ignore[no-any-return]


def _signature(function: Callable[..., Any]) -> Any:
    hints = get_type_hints(function)
    result = _numba_types[hints.pop("return")]
    return result(*(_numba_types[hint] for hint in hints.values()))


def keep_table(name: str, build: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
    """Have arrays that are slow to build kept in the cache with the compiled code."""
    _tables[name] = build


def table(name: str) -> Mapping[str, NDArray[Any]]:
    """The arrays of a kept table."""
    load()
    return _arrays[name]


def load() -> CompileReport:
    """Make the engine ready to be called; compile it if no cache has it. Idempotent."""
    global _report
    if _report is None:
        with _lock:
            if _report is None:
                _report = _load()
    return _report


def compiled_home() -> tuple[Path, bool]:
    """Where the compiled engine is kept, and whether it is there; compiles nothing."""
    home = _cache_root() / f"crafter-{_fingerprint()}"
    return home, _intact(home)


def _load() -> CompileReport:
    if numba.config.DISABLE_JIT:
        raise UsageError("the engine must be compiled; unset NUMBA_DISABLE_JIT")
    started = time.perf_counter()
    home, is_there = compiled_home()
    root = home.parent
    if is_there:
        try:
            _read(home)
        except Exception:  # whatever a broken cache file does to numba or pickle
            _log.warning("the compiled engine in %s cannot be read: compiling anew", home)
            # What was read is not compiled again, so only the next start can keep it all.
            with tempfile.TemporaryDirectory() as scratch:
                _compile(Path(scratch))
            _remove(home)
            return CompileReport(True, time.perf_counter() - started, None)
        return CompileReport(False, time.perf_counter() - started, home)
    _log.warning("compiling the Crafter engine, once for this machine (about 20 s)")
    workshop = _workshop(root)
    kept = False
    if workshop is not None:
        try:
            _compile(workshop)
            _seal(workshop)
            kept = _install(workshop, home)
        except OSError:  # such as a full disk
            _remove(workshop)
    if not kept:
        _compile(None)
        _log.warning(
            "cannot write to %s, so every start will compile: "
            "set ASSAY_CACHE_DIR to a folder you can write to",
            root,
        )
    return CompileReport(True, time.perf_counter() - started, home if kept else None)


def _read(home: Path) -> None:
    try:
        _compile_entries(home)
    except PermissionError:
        with tempfile.TemporaryDirectory() as copy:
            for name in _hashes(home):
                target = Path(copy, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(home / name, target)
            _compile_entries(Path(copy))
    if not all(dispatcher.stats.cache_hits for dispatcher, _ in _entries):
        raise LookupError("an entry is not in the cache")
    for name in _tables:
        with np.load(home / f"{name}.npz") as saved:
            _arrays[name] = dict(saved)


def _compile(workshop: Path | None) -> None:
    """Compile what is not compiled yet, and keep it in a folder."""
    for dispatcher, signature in _kernels:
        _compile_one(dispatcher, signature)
    _compile_entries(workshop)
    for name, build in _tables.items():
        _arrays[name] = build()
        if workshop is not None:
            np.savez(workshop / f"{name}.npz", allow_pickle=False, **_arrays[name])


def _compile_entries(cache: Path | None) -> None:
    for dispatcher, signature in _entries:
        if cache is not None:
            _keep_in(cache, dispatcher)
        _compile_one(dispatcher, signature)


def _keep_in(cache: Path, dispatcher: Any) -> None:
    """Have numba look for an entry in a folder; PermissionError if it cannot write there."""
    # Even to read numba wants to write. It would turn to other folders, which it trusts
    # for as long as the one file of the entry is the same.
    if not os.access(cache, os.W_OK):
        raise PermissionError(f"cannot write to {cache}")
    before = numba.config.CACHE_DIR
    try:
        numba.config.CACHE_DIR = str(cache)
        dispatcher.enable_caching()
    finally:
        numba.config.CACHE_DIR = before
    if not Path(dispatcher.stats.cache_path).is_relative_to(cache):
        raise PermissionError(f"cannot write to {cache}")


def _compile_one(dispatcher: Any, signature: Any) -> None:
    if signature.args not in dispatcher.signatures:
        dispatcher.compile(signature)
    # From now on arguments of other widths are cast to the ones it was compiled for.
    dispatcher.disable_compile()


def _cache_root() -> Path:
    chosen = os.environ.get("ASSAY_CACHE_DIR")
    return Path(chosen).expanduser() if chosen else user_cache_path("assay")


def _fingerprint() -> str:
    """Everything that decides what the compiled code is: sources, tools, CPU, mode."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    # numba looks at the file of an entry only, not at those of what it calls. The
    # folder above holds the rules and difficulties that kernels take as constants.
    data = [folder.parent / name for name in ("difficulty.py", "rules.py")]
    for source in [*sorted(folder.glob("*.py")), *data]:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    facts = (
        str(folder),
        sys.version,
        numba.__version__,
        llvmlite.__version__,
        np.__version__,
        str(cpu_target.target_context.codegen().magic_tuple()),
        str((CHECKED, numba.config.OPT)),
    )
    digest.update("\0".join(facts).encode())
    return digest.hexdigest()[:20]


def _workshop(root: Path) -> Path | None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        _clean(root)
        workshop = Path(tempfile.mkdtemp(prefix="compiling-", dir=root))
        workshop.chmod(0o755)  # others may read what one user compiled
        return workshop
    except OSError:
        return None


def _clean(root: Path) -> None:
    """Remove what starts that were killed left behind, and engines of a month ago."""
    for pattern, days in (("compiling-*", 1), ("crafter-*", 30)):
        for folder in root.glob(pattern):
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > days * 86_400:
                    _remove(folder)


def _hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


def _seal(folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps(_hashes(folder), indent=1))


def _intact(folder: Path) -> bool:
    try:
        recorded = json.loads((folder / "manifest.json").read_text())
        return bool(recorded == _hashes(folder))
    except (OSError, ValueError):
        return False


def _install(workshop: Path, home: Path) -> bool:
    """Give the finished folder its name, unless a good one has it; whether one has now."""
    if not _intact(home):
        _remove(home)
    try:
        workshop.rename(home)
    except OSError:  # another process was first, and its folder is as good as ours
        _remove(workshop)
        return _intact(home)
    return True


def _remove(path: Path) -> None:
    """Remove a folder, or the file in its place, as far as that can be done."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
