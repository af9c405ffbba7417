"""The viewer: pages in a browser about runs, episodes and comparisons."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.errors import AssayError, UsageError
from assay.store.opening import Where, store_at

if TYPE_CHECKING:
    from assay.episodes.replay import Difference, Verification
    from assay.judge.results import Comparison
    from assay.report.viewer.library import Library
    from assay.report.viewer.server import RunningViewer, ViewerSettings
    from assay.store.records import SessionRecord
    from assay.store.store import Store
    from assay.types import ChatModel

_FREE = "builtin/"
_PATIENCE_S = 5.0
"""Seconds to wait for a process that writes the database."""


@contextmanager
def view(
    *paths: str, database: Where = None, replay_code: bool = False, **settings: Any
) -> "Iterator[RunningViewer]":
    """Serve the viewer in a thread, within a `with` block.

    with assay.view(port=0) as viewer: print(viewer.url)

    Args:
        *paths: A run or an episode to open first; or traces in files, which are opened
            instead of a database.
        database: Database to show.
        replay_code: Whether user code named in the database may run, to replay its episodes.
        **settings: Fields of `ViewerSettings`: host, port, token and so on.
    """
    from assay.report.viewer.server import ViewerSettings, running

    chosen = ViewerSettings(**settings)
    budget = chosen.budget_usd
    with (
        opened(paths, database, replay_code=replay_code, budget_usd=budget) as (library, start),
        running(library, replace(chosen, start=start or chosen.start)) as viewer,
    ):
        yield viewer


@contextmanager
def opened(
    paths: Sequence[str],
    database: Where = None,
    *,
    replay_code: bool = False,
    budget_usd: float = 0.0,
) -> "Iterator[tuple[Library, str | None]]":
    """Open a database, or traces in files, for the viewer.

    Yields the library and the page of the named run or episode, if any.
    """
    from assay.report.viewer.library import Library
    from assay.store.store import Store, store_traced_sessions

    store = Store(store_at(database).path, patience=_PATIENCE_S)
    # Sessions of a tracer may wait in journals beside a file that does not exist yet.
    with suppress(AssayError, OSError):
        store_traced_sessions(store.path)
    damaged: tuple[str, ...] = ()
    own = [Path(path) for path in paths if Path(path).exists()]
    with ExitStack() as opened:
        if own:
            from assay.api.traces import open_traces

            if len(own) < len(paths):
                raise UsageError("give files, or a run or an episode of a database, not both")
            found = opened.enter_context(open_traces(own))
            store = found.store
            damaged = tuple(f"{where} {reason}" for where, reason in found.damaged)
        library = Library(
            store,
            _comparer(store),
            _Runs(store, budget_usd),
            replay_code=replay_code,
            damaged=damaged,
            writable=not own,
        )
        yield library, None if own or not paths else _start(store, paths)


def _start(store: "Store", names: Sequence[str]) -> str:
    """Return the page of a run, an episode, or of two episodes."""
    from assay.store.names import SESSION_WORDS, resolve, resolve_run, resolve_session

    if len(names) > 2:
        raise UsageError("name one run, one episode, or two episodes to see side by side")
    with store.reading() as connection:
        if len(names) == 2:
            pair = [resolve_session(connection, name) for name in names]
            return f"#/pair/{'/'.join(pair)}"
        (name,) = names
        if name == "latest":
            return f"#/run/{resolve_run(connection, name)}"
        if name in SESSION_WORDS:
            return f"#/episode/{resolve_session(connection, name)}"
        meaning = resolve(connection, name, "session", "run")
    if meaning is None:
        raise UsageError(
            f"no episode or run is named {name!r}, and no file; see 'assay traces list'"
        )
    return f"#/{'episode' if meaning.kind == 'session' else 'run'}/{meaning.id}"


def _comparer(store: "Store", *, exported: bool = False) -> Any:
    from assay.api.comparison import compare, stored_subjects

    def comparison(
        names: Sequence[str],
        metric: str | None = None,
        baseline: str | None = None,
        seeds: str | None = None,
    ) -> "Comparison":
        options: dict[str, Any] = {} if seeds is None else {"seeds": seeds}
        options["metrics"] = None if metric is None else [metric]
        if not exported:
            return compare(*names, database=store, baseline=baseline, **options)
        # A file names no database of this machine.
        subjects = stored_subjects(names, database=store)
        own = [replace(subject, database=None) for subject in subjects]
        return compare(*own, baseline=baseline, **options)

    return comparison


class ExportedPage(NamedTuple):
    """A page that was written to a file."""

    path: Path
    episodes: int
    size: int
    """Bytes of the file."""


def export_view(
    *names: str, output: Path | str, force: bool = False, database: Where = None
) -> ExportedPage:
    """Write episodes and their comparison as one page that needs no server.

    Args:
        *names: Episodes, experiments or runs; default: the latest run.
        output: File to write, such as report.html.
        force: Replace an existing file.
        database: Database to read.
    """
    from assay.core.files import atomic_write
    from assay.report.viewer.export import MOST_EPISODES
    from assay.store.export import read_traces
    from assay.store.formats.trace_json import dump_line
    from assay.store.queries import select_sessions

    path, store = Path(output), store_at(database)
    if path.exists() and not force:
        raise UsageError(f"{str(path)!r} exists already; name another file, or give --force")
    with store.reading() as connection:
        chosen = select_sessions(connection, names or ["latest"])
    if not 1 <= len(chosen) <= MOST_EPISODES:
        raise UsageError(
            f"{len(chosen)} episodes are selected; a page has 1 to {MOST_EPISODES}, so name "
            "some of them"
        )
    record = b"".join(dump_line(trace) for trace in read_traces(store, chosen))
    text, _, _ = _rebuilt(record)
    atomic_write(path, text.encode())
    return ExportedPage(path, len(chosen), len(text.encode()))


class PageVerification(NamedTuple):
    """Result of the verification of a page."""

    episodes: "list[Verification]"
    difference: str | None
    """Where the page differs from what its record gives; None if it does not."""
    repeated: tuple[str, ...]
    """What the page only repeats, because it cannot be recomputed."""

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        from assay.episodes.replay import Finding

        return self.difference is None and all(
            episode.finding is not Finding.DIFFERENT for episode in self.episodes
        )


def verify_page(path: Path | str) -> PageVerification:
    """Rebuild a page from the record inside it, replay its episodes, and compare everything.

    Raises:
        UsageError: The file is not a page of the viewer.
    """
    from assay.report.viewer.export import first_difference, read_record

    try:
        text = Path(path).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as a page: {error}") from error
    rebuilt, verifications, repeated = _rebuilt(read_record(text))
    return PageVerification(verifications, first_difference(text, rebuilt), repeated)


def _rebuilt(record: bytes) -> "tuple[str, list[Verification], tuple[str, ...]]":
    """Return the page of a record, the verification of its episodes, and what it repeats."""
    from assay.api.traces import open_traces, verify
    from assay.episodes.replay import Finding, Verification
    from assay.report.viewer.export import export_page
    from assay.report.viewer.library import Library
    from assay.store.load import load_sessions
    from assay.store.queries import select_sessions

    with tempfile.TemporaryDirectory(prefix="assay-page-") as folder:
        file = Path(folder, "traces.jsonl")
        file.write_bytes(record)
        with open_traces([file]) as (store, damaged):
            if damaged:
                raise UsageError(f"the record is damaged: {damaged[0].reason}")
            library = Library(
                store,
                _comparer(store, exported=True),
                _Runs(store, 0.0),
                writable=False,
                exported=True,
            )
            with store.reading() as connection:
                keys = select_sessions(connection)
                sessions = list(load_sessions(connection, keys, messages=False))
            repeated = _repeated(sessions)
            text = export_page(library, keys, record, repeated)
            found = dict(zip(keys, verify(database=store), strict=True))
            for session in sessions:
                key = session.header.session_id
                difference = _outcome_difference(session)
                if difference is not None and found[key].finding is not Finding.DIFFERENT:
                    steps = found[key].steps
                    found[key] = Verification(key, Finding.DIFFERENT, steps, difference)
            return text, list(found.values()), repeated


def _outcome_difference(session: "SessionRecord") -> "Difference | None":
    """Return the first outcome that does not follow from the turns and calls of an episode."""
    from assay.crafter.rules import TASK
    from assay.episodes.replay import Difference
    from assay.episodes.totals import EpisodeTotals

    header, end = session.header, session.end
    plain = header.trial_kind == "episode" and header.parent is None
    if end is None or not plain or not header.task.startswith(TASK):
        return None
    for name, value in EpisodeTotals.of(session).outcomes(end.duration_s).items():
        stored = end.outcomes.get(name, value)
        if abs(stored - value) > _TOLERANCE:
            return Difference(None, None, f"outcome {name}", f"{stored:g}", f"{value:g}")
    return None


def _repeated(sessions: "Sequence[SessionRecord]") -> tuple[str, ...]:
    from assay.episodes.totals import EpisodeTotals

    models = sorted({call.model for session in sessions for call in session.calls})
    coding = any(session.header.trial_kind == "coding" for session in sessions)
    imported = any(session.imported_totals for session in sessions)
    outcomes = {
        name
        for session in sessions
        for name in (session.end.outcomes if session.end else ())
        if not name.startswith("unlocked/")
    }
    own = sorted(outcomes - {*EpisodeTotals.of(sessions[0]).outcomes(0.0)})
    return (
        *([f"replies, tokens, prices and times of {', '.join(models)}"] if models else []),
        *([f"the metrics {', '.join(own)}"] if own else []),
        *(["scores of coding trials"] if coding else []),
        *(["logs of other programs"] if imported else []),
    )


_TOLERANCE = 1e-6
"""Times are stored in whole microseconds."""


class _Runs:
    """Runs started from the page."""

    def __init__(self, store: "Store", budget_usd: float) -> None:
        self._store, self._left = store, budget_usd

    def play(self, model: "ChatModel", **settings: Any) -> str:
        """Run one episode of a person."""
        from assay.api.runs import run

        with self._settings() as common:
            result = run(models=[model], episodes=1, baselines=False, **settings, **common)
        return result.run_id

    def fork(
        self,
        session: str,
        turn: int,
        models: "Sequence[str | ChatModel]",
        accept_usd: float | None = None,
    ) -> str:
        """Continue an episode; a model that costs money must be paid for first."""
        from assay.api.runs import fork

        options: dict[str, Any] = {}
        if any(isinstance(model, str) and not model.startswith(_FREE) for model in models):
            options["budget"] = self._accepted(accept_usd)
        with self._settings() as common:
            result = fork(session, models=models, at=turn, futures=1, **options, **common)
        return result.run_id

    def _accepted(self, accept_usd: float | None) -> float:
        from assay.report.viewer.play import ForkPrice

        if not isinstance(accept_usd, int | float) or not 0 < accept_usd <= self._left:
            raise ForkPrice(
                f"a remote model costs money: accept up to ${self._left:.2f}, the rest of "
                "--budget",
                self._left,
            )
        self._left -= accept_usd
        return float(accept_usd)

    @contextmanager
    def _settings(self) -> Iterator[dict[str, Any]]:
        """Yield settings of a run that leaves nothing but its episode in the database."""
        with tempfile.TemporaryDirectory(prefix="assay-view-") as folder:
            yield {
                "database": self._store.path,
                "fresh": True,
                "save_traces": False,
                "save_detailed_results": False,
                "traces_dir": folder,
            }


def serve_viewer(library: "Library", settings: "ViewerSettings", announce: Any) -> None:
    """Serve the viewer until Ctrl-C; `announce` is called when browsers can connect."""
    from assay.report.viewer.server import run

    run(library, settings, announce)
