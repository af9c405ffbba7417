"""Access to a database for the viewer: loads, replays, and keeps the last results.

The file is open only during a query, so that a run can write at the same time. Results are kept
until the file changes.
"""

import gzip
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from assay.crafter.film import FRAME, Camera, map_tiles
from assay.episodes.replay import (
    Finding,
    Replay,
    Verification,
    verify_episode,
    verify_session,
)
from assay.errors import EpisodeOver, JournalError, ReplayError, UsageError, WorldFull
from assay.store.journal import read_session
from assay.store.load import load_session, load_sessions
from assay.store.names import SESSION_WORDS, resolve_session
from assay.store.records import SessionRecord
from assay.store.run_folder import RunFolder, unfinished_runs
from assay.store.store import Store
from assay.types import ChatModel

if TYPE_CHECKING:
    from assay.judge.results import Comparison

_T = TypeVar("_T")
_KEPT: Final = 256
_USER_CODE: Final = (
    "its environment is user code, which runs only if the viewer is started with --replay-code"
)
Comparer = Callable[..., "Comparison"]
"""Compares entries by name: `compare(names, metric, baseline, seeds)`."""


class Runs(Protocol):
    """Starts runs; returns the id of a run when it has ended."""

    def play(self, model: ChatModel, **settings: Any) -> str:
        """Run one episode of a model."""
        ...

    def fork(
        self,
        session: str,
        turn: int,
        models: Sequence[str | ChatModel],
        accept_usd: float | None = None,
    ) -> str:
        """Continue an episode after some of its turns."""
        ...


class Missing(UsageError):
    """A run, an episode or a part of one is not in the database."""


@dataclass(frozen=True)
class Recording:
    """One episode with its frames."""

    session: SessionRecord
    frames: NDArray[np.uint8]
    """(frames, FRAME): the start and the world after each step; empty if it has none."""
    reason: str | None = None
    """Why it has no frames."""

    @property
    def steps(self) -> int:
        """Number of the last step that has a frame."""
        return max(0, len(self.frames) - 1)

    def film(self, most: int | None = None) -> bytes:
        """Return the frames, or `most` of them at equal distances, as compressed bytes."""
        every = 1
        if most is not None and len(self.frames) > most:
            every = -(-self.steps // (most - 1))
        places = [*range(0, self.steps, every), self.steps]
        head = b"AVF1" + struct.pack("<III", len(places), every, self.steps)
        return squeeze(head + self.frames[places].tobytes())


def squeeze(data: bytes) -> bytes:
    """Compress data; equal data gives equal bytes."""
    return gzip.compress(data, 6, mtime=0)


@dataclass
class Library:
    """What the viewer shows of one database."""

    store: Store
    compare: Comparer
    runs: Runs
    replay_code: bool = False
    """Whether user code named in the database may run."""
    damaged: Sequence[str] = ()
    """Sentences about sources that could not be read."""
    writable: bool = True
    exported: bool = False
    """Whether its answers become part of a file, which names no place on this machine."""
    _kept: OrderedDict[object, Any] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def path(self) -> Path:
        """The database file."""
        return self.store.path

    def stamp(self) -> tuple[int, ...]:
        """Return values that change when the file changes."""
        found: list[int] = []
        for name in (self.path.name, f"{self.path.name}.wal"):
            with suppress(OSError):
                status = self.path.with_name(name).stat()
                found += [status.st_mtime_ns, status.st_size]
        return tuple(found)

    def keep(self, key: object, make: Callable[[], _T]) -> _T:
        """Return the result of `make`, kept until the file changes."""
        whole = (self.stamp(), key)
        with self._lock:
            if whole in self._kept:
                self._kept.move_to_end(whole)
                found: _T = self._kept[whole]
                return found
        made = make()
        with self._lock:
            self._kept[whole] = made
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return made

    def reading(self) -> AbstractContextManager[Any]:
        """Open a connection for one query."""
        return self.store.reading()

    def open_runs(self) -> list[RunFolder]:
        """Return the unfinished runs, the oldest first."""
        return unfinished_runs(self.path)

    def resolve(self, name: str) -> str:
        """Return the id of an episode, stored or in progress.

        Raises:
            Missing: It is unknown, or the name is ambiguous.
        """
        if name not in SESSION_WORDS and self._journal(name) is not None:
            return name
        try:
            with self.reading() as connection:
                return resolve_session(connection, name)
        except UsageError as error:
            raise Missing(str(error)) from error

    def _journal(self, name: str) -> tuple[RunFolder, Path] | None:
        for folder in self.open_runs():
            with suppress(UsageError):  # not a valid id
                path = folder.path(name)
                if path.exists():
                    return folder, path
        return None

    def session(self, name: str) -> SessionRecord:
        """Load an episode with its messages, from the database or from its journal."""
        return self.keep(("session", name), lambda: self._load(name))

    def _load(self, name: str) -> SessionRecord:
        if self.path.exists():
            with suppress(UsageError), self.reading() as connection:
                return load_session(connection, name)
        if (found := self._journal(name)) is not None:
            folder, path = found
            with suppress(JournalError):
                return read_session(path, folder.record.id)
        raise Missing(f"episode {name!r} not found; see the list of episodes")

    def is_live(self, name: str) -> bool:
        """Return whether an episode is still recorded."""
        return self._journal(name) is not None

    def recording(self, name: str) -> Recording:
        """Return an episode without messages, with its frames."""
        if self.is_live(name):
            return _film(self._load(name))
        return self.recordings([name])[name]

    def recordings(self, names: Sequence[str]) -> Mapping[str, Recording]:
        """Return episodes with their frames; several are read together."""
        stamp = self.stamp()
        with self._lock:
            found = {
                name: self._kept[key]
                for name in names
                if (key := (stamp, ("film", name))) in self._kept
            }
        missing = [name for name in names if name not in found]
        if missing:
            with self.reading() as connection:
                sessions = list(load_sessions(connection, missing, messages=False))
            for name, session in zip(missing, sessions, strict=True):
                found[name] = self.keep(("film", name), partial(_film, session))
        return found

    def verification(self, name: str) -> Verification:
        """Replay an episode now, and compare it with what was recorded."""
        if self.is_live(name):
            return self._verify(self._load(name))
        return self.keep(("verified", name), lambda: self._verify(self.session(name)))

    def _verify(self, session: SessionRecord) -> Verification:
        if isinstance(session.header.metadata.get("environment"), dict):
            if not self.replay_code:
                name = session.header.session_id
                return Verification(name, Finding.UNVERIFIABLE, 0, reason=_USER_CODE)
            return verify_episode(session)
        return verify_session(session)


_NO_FRAMES = np.empty((0, FRAME), np.uint8)


def _film(session: SessionRecord) -> Recording:
    try:
        replay = Replay(session)
    except ReplayError as error:
        return Recording(session, _NO_FRAMES, str(error))
    camera = Camera(replay.world, replay.steps + 1)
    camera.take()
    last = None
    with suppress(EpisodeOver, WorldFull):
        for replayed in replay:
            camera.take()
            last = replayed.recorded
    frames = camera.frames()
    # A state follows from all before it, so the last digest stands for all.
    is_same = last is None or last.digest in (None, f"{replay.world.digest():016x}")
    if not is_same or replay.world.steps < replay.steps:
        frames = frames[: verify_session(session).steps + 1]
    return Recording(session, frames)


def map_film(session: SessionRecord) -> bytes:
    """Return the whole map at the start, and the cells that change in each step."""
    replay = Replay(session)
    tiles = map_tiles(replay.world)
    parts = [tiles.tobytes()]
    with suppress(EpisodeOver, WorldFull):
        for _ in replay:
            now = map_tiles(replay.world)
            cells = np.flatnonzero(now != tiles)
            change = np.empty(len(cells), np.dtype([("cell", "<u2"), ("tile", "u1")]))
            change["cell"], change["tile"] = cells, now[cells]
            parts.append(struct.pack("<H", len(cells)) + change.tobytes())
            tiles = now
    return squeeze(b"AVM1" + struct.pack("<I", len(parts)) + b"".join(parts))
