"""Compilation of the engine with numba, once per machine.

`@kernel` marks a function of the engine, `@entry` one that is called from Python. Both declare
their types as annotations. Nothing is compiled when a module is imported: `load` reads the
entries from the user's cache folder, or compiles everything into a new folder there and renames
it into place. A folder with the final name is therefore always complete, even if several
processes start at the same time. A folder whose files do not match their recorded hashes is
deleted.

Compiled code works on raw pointers. With NUMBA_BOUNDSCHECK=1 in the environment it is compiled
over bounds-checked arrays instead, where a negative index is also an error: slow, for tests.
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
    """A sequence of integers of any width in memory, as kernels see it."""

    def __getitem__(self, index: int) -> int: ...

    def __setitem__(self, index: int, value: int) -> None: ...


class Reals(Protocol):
    """A sequence of 64-bit floats in memory, as kernels see it."""

    def __getitem__(self, index: int) -> float: ...

    def __setitem__(self, index: int, value: float) -> None: ...


class CompileReport(NamedTuple):
    """How the engine was loaded: compiled or cached, how fast, and from where."""

    compiled: bool
    """Whether the engine was compiled; otherwise it was read from the cache."""
    seconds: float
    """Duration of loading."""
    directory: Path | None
    """Folder of the compiled engine; None if no folder is writable."""


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

    def _keep_index(context: Any, builder: Any, index_type: Any, index: Any, size: Any) -> Any:
        del size
        native = types.intp if index_type.signed else types.uintp
        return context.cast(builder, index, index_type, native)

    # Before its check, numba counts negative indices from the end, as Python does.
    arrayobj.fix_integer_index = _keep_index


def register(annotation: Any, numba_type: Any) -> None:
    """Set the numba type of an annotation used by kernels."""
    _numba_types[annotation] = numba_type


def pointer(dtype: str) -> tuple[Any, Any]:
    """Return the numba type of `dtype` sequences, and a kernel (address, count) -> sequence."""
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
    """Mark a function of the engine; its annotations become its compiled signature."""
    return _add_kernel(function, forceinline=False)


def inlined(function: Function) -> Function:
    """Mark a small function of the engine that is inlined wherever it is used."""
    return _add_kernel(function, forceinline=True)


def entry(function: Function) -> Function:
    """Mark a function of the engine that is called from Python."""
    return _add_entry(function, nogil=False)


def threaded_entry(function: Function) -> Function:
    """Mark a function called from several threads at once; it releases the GIL."""
    return _add_entry(function, nogil=True)


def _add_entry(function: Function, *, nogil: bool) -> Function:
    dispatcher = numba.njit(function, nogil=nogil)
    _entries.append((dispatcher, _make_signature(function)))
    return dispatcher  # type: ignore[no-any-return]


def _add_kernel(function: Function, *, forceinline: bool) -> Function:
    dispatcher = numba.njit(function, forceinline=forceinline, no_cpython_wrapper=True)
    # Without an explicit signature numba compiles a copy for each width of the arguments.
    _kernels.append((dispatcher, _make_signature(function)))
    return dispatcher  # type: ignore[no-any-return]


def _make_signature(function: Callable[..., Any]) -> Any:
    hints = get_type_hints(function)
    result = _numba_types[hints.pop("return")]
    return result(*(_numba_types[hint] for hint in hints.values()))


def keep_table(name: str, build: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
    """Store arrays that are slow to build in the cache, next to the compiled code."""
    _tables[name] = build


def table(name: str) -> Mapping[str, NDArray[Any]]:
    """Return the arrays of a stored table."""
    load()
    return _arrays[name]


def load() -> CompileReport:
    """Load the engine, compiling it if it is not cached. Idempotent."""
    global _report
    if _report is None:
        with _lock:
            if _report is None:
                _report = _load()
    return _report


def compiled_home() -> tuple[Path, bool]:
    """Return the folder of the compiled engine, and whether it is complete; compile nothing."""
    home = _cache_root() / f"crafter-{_fingerprint()}"
    return home, _is_intact(home)


def _load() -> CompileReport:
    if numba.config.DISABLE_JIT:
        raise UsageError("the engine must be compiled; unset NUMBA_DISABLE_JIT")
    started = time.perf_counter()
    home, is_cached = compiled_home()
    root = home.parent
    if is_cached:
        try:
            _read_cache(home)
        except Exception:  # a broken cache file can raise any error in numba or pickle
            _log.warning("the compiled engine in %s cannot be read: compiling anew", home)
            # Entries already read are not compiled again, so only the next start stores all.
            with tempfile.TemporaryDirectory() as scratch:
                _compile(Path(scratch))
            _remove(home)
            return CompileReport(True, time.perf_counter() - started, None)
        return CompileReport(False, time.perf_counter() - started, home)
    _log.warning("compiling the Crafter engine, once for this machine (about 20 s)")
    build_folder = _make_build_folder(root)
    is_stored = False
    if build_folder is not None:
        try:
            _compile(build_folder)
            _write_manifest(build_folder)
            is_stored = _install(build_folder, home)
        except OSError:  # such as a full disk
            _remove(build_folder)
    if not is_stored:
        _compile(None)
        _log.warning(
            "cannot write to %s, so every start will compile: "
            "set ASSAY_CACHE_DIR to a folder you can write to",
            root,
        )
    return CompileReport(True, time.perf_counter() - started, home if is_stored else None)


def _read_cache(home: Path) -> None:
    try:
        _compile_entries(home)
    except PermissionError:
        with tempfile.TemporaryDirectory() as copy:
            for name in _compute_hashes(home):
                target = Path(copy, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(home / name, target)
            _compile_entries(Path(copy))
    if not all(dispatcher.stats.cache_hits for dispatcher, _ in _entries):
        raise LookupError("an entry is not in the cache")
    for name in _tables:
        with np.load(home / f"{name}.npz") as saved:
            _arrays[name] = dict(saved)


def _compile(build_folder: Path | None) -> None:
    """Compile everything that is not compiled yet, and store it in a folder."""
    for dispatcher, signature in _kernels:
        _compile_one(dispatcher, signature)
    _compile_entries(build_folder)
    for name, build in _tables.items():
        _arrays[name] = build()
        if build_folder is not None:
            np.savez(build_folder / f"{name}.npz", allow_pickle=False, **_arrays[name])


def _compile_entries(cache: Path | None) -> None:
    for dispatcher, signature in _entries:
        if cache is not None:
            _set_cache_folder(cache, dispatcher)
        _compile_one(dispatcher, signature)


def _set_cache_folder(cache: Path, dispatcher: Any) -> None:
    """Set the cache folder of an entry; raise PermissionError if it is not writable."""
    # numba requires a writable folder even for reading. It would fall back to other folders,
    # where it compares only the source file of the entry.
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
    # From now on arguments of other widths are cast to the compiled types.
    dispatcher.disable_compile()


def _cache_root() -> Path:
    chosen = os.environ.get("ASSAY_CACHE_DIR")
    return Path(chosen).expanduser() if chosen else user_cache_path("assay")


def _fingerprint() -> str:
    """Hash everything that determines the compiled code: sources, tools, CPU, mode."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    # numba compares only the file of an entry, not those of the functions it calls. The parent
    # folder has the rules and difficulties that kernels use as constants.
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


def _make_build_folder(root: Path) -> Path | None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        _remove_old_folders(root)
        build_folder = Path(tempfile.mkdtemp(prefix="compiling-", dir=root))
        build_folder.chmod(0o755)  # other users may read the compiled code
        return build_folder
    except OSError:
        return None


def _remove_old_folders(root: Path) -> None:
    """Remove folders left by killed processes, and engines older than a month."""
    for pattern, days in (("compiling-*", 1), ("crafter-*", 30)):
        for folder in root.glob(pattern):
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > days * 86_400:
                    _remove(folder)


def _compute_hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


def _write_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps(_compute_hashes(folder), indent=1))


def _is_intact(folder: Path) -> bool:
    try:
        recorded = json.loads((folder / "manifest.json").read_text())
        return bool(recorded == _compute_hashes(folder))
    except (OSError, ValueError):
        return False


def _install(build_folder: Path, home: Path) -> bool:
    """Rename the finished folder to its final name; return whether an intact one is there."""
    if not _is_intact(home):
        _remove(home)
    try:
        build_folder.rename(home)
    except OSError:  # another process was faster, and its folder is equivalent
        _remove(build_folder)
        return _is_intact(home)
    return True


def _remove(path: Path) -> None:
    """Remove a folder or file, ignoring errors."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
