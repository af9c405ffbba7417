"""The web server of the viewer.

A page and its modules contain no data and need no token; every other request does. Requests
that write need a second token, which only a page of this server can read. Every answer has a
policy under which a browser runs no script but ours and sends nothing elsewhere.
"""

import asyncio
import contextlib
import gzip
import hmac
import json
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, Final

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay._version import __version__
from assay.core.hosting import (
    HostSettings,
    Server,
    format_address,
    make_server,
    open_listener,
    serve_in_thread,
)
from assay.core.http import BodyAbandoned, Guard, make_response, read_body, to_response
from assay.crafter.difficulty import DIFFICULTIES
from assay.crafter.engine.numerics import MAX_LENGTH, daylights
from assay.crafter.film import SPRITE_NAMES, TILES, sheet
from assay.crafter.players.policies import POLICIES
from assay.crafter.rules import (
    ACHIEVEMENTS,
    ACTIONS,
    EASIEST_FIRST,
    ITEMS,
    MATERIALS,
    VITALS,
)
from assay.errors import AssayError, EpisodeOver, StoreBusy, StoreError, UsageError
from assay.report.figures.palette import COLOURS
from assay.report.viewer import lists
from assay.report.viewer.coding import coding_values
from assay.report.viewer.comparisons import (
    ComparisonChoice,
    comparison_page,
    home_verdict,
    section_figures,
)
from assay.report.viewer.episodes import (
    episode_values,
    frame_png,
    frame_text,
    message_page,
    whole_message,
)
from assay.report.viewer.library import Library, Missing, map_film, squeeze
from assay.report.viewer.live import LiveWatch
from assay.report.viewer.modules import static_files
from assay.report.viewer.play import ForkPrice, Games, fork_episode
from assay.store.notes import OPPOSITES, add_note, delete_note, set_labels
from assay.store.viewing import filter_names, latest_run, totals

DEFAULT_PORT: Final = 8905
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types assay-svg"
)
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
_BINARY: Final = "application/octet-stream"
_FOREVER: Final = "private, max-age=31536000, immutable"
_UNITS: Final = (8, 16, 24, 32)
_MOST: Final = 200
_MOST_FILMS: Final = 64
_ALL_MESSAGES: Final = 100_000
_SMALL: Final = 1_000
_EVERY_S: Final = 1.0
_QUIET: Final = 10
HINT: Final = (
    "No episodes yet. Run 'assay run --episodes 3', which needs no key and no network."
)


class _Answers:
    """The requests that a page can make, each by the name of its route."""

    def __init__(self, library: Library, settings: "ViewerSettings", games: Games) -> None:
        self.library, self.settings, self.games = library, settings, games

    def session(self, request: Request) -> Any:
        library = self.library
        episodes = runs = 0
        if library.path.exists():
            with library.reading() as connection:
                episodes, runs = totals(connection)
        return {
            "assay": __version__,
            "database": "" if library.exported else str(library.path),
            "page_token": "" if library.exported else self.settings.page_token,
            "replay_code": library.replay_code,
            "budget_usd": self.settings.budget_usd,
            "start": self.settings.start,
            "start_hint": None if episodes or library.open_runs() else HINT,
            "writable": library.writable,
            "episodes": episodes,
            "runs": runs,
            "live": not library.exported,
            "damaged": list(library.damaged),
            **CONSTANTS,
        }

    def home(self, request: Request) -> Any:
        library, name = self.library, request.query_params.get("run")
        empty = {"run": None, "verdict": None, "verdict_reason": None, "leaderboard": None}
        live = lists.list_runs(library, limit=1)["rows"]
        if name is None and library.path.exists():
            with library.reading() as connection:
                name = latest_run(connection)
        if name is None:
            run = live[0] if live else None
            return {**empty, "run": run, "wall": None, "hint": None if run else HINT}
        run = lists.one_run(library, name)
        wall = lists.wall(library, run["id"], lists.METRIC)
        return {"run": run, **home_verdict(library, run), "wall": wall, "hint": None}

    def runs(self, request: Request) -> Any:
        query = request.query_params
        wanted = {name: query.get(name) for name in ("status", "model", "text")}
        return lists.list_runs(self.library, **wanted, **_page(request))

    def run(self, request: Request) -> Any:
        return lists.one_run(self.library, request.path_params["name"])

    def episodes(self, request: Request) -> Any:
        query = dict(request.query_params)
        sort = query.pop("sort", "-created_at")
        filters = {name: query[name] for name in query if name not in ("offset", "limit")}
        if unknown := sorted(set(filters) - {*filter_names()}):
            raise UsageError(f"unknown filter {unknown[0]!r}")
        return lists.list_episodes(self.library, filters, sort=sort, **_page(request))

    def episode(self, request: Request) -> Any:
        return episode_values(self.library, request.path_params["name"])

    def messages(self, request: Request) -> Any:
        start = _whole(request, "from", 0, 0, 10**9)
        limit = _whole(request, "limit", 100, 1, _ALL_MESSAGES)
        return message_page(self.library, request.path_params["name"], start, limit)

    def message(self, request: Request) -> Any:
        name, position = request.path_params["name"], request.path_params["position"]
        return _text(whole_message(self.library, name, position))

    def film(self, request: Request) -> Any:
        key = self.library.resolve(request.path_params["name"])
        recording = self.library.recording(key)
        if not len(recording.frames):
            raise UsageError(recording.reason or "it has no frames")
        most = _whole(request, "frames", 0, 0, MAX_LENGTH) or None
        if most is None and not self.library.is_live(key):
            return _binary(self.library.keep(("squeezed", key), recording.film))
        return _binary(recording.film(most and max(2, most)))

    def films(self, request: Request) -> Any:
        names = _names(request, "episodes")
        if len(names) > _MOST_FILMS:
            raise UsageError(f"{len(names)} films are too many; at most {_MOST_FILMS}")
        most = _whole(request, "frames", 60, 2, 1000)
        keys = [self.library.resolve(name) for name in names]
        found = self.library.recordings(keys)
        films = [found[key].film(most) if len(found[key].frames) else b"" for key in keys]
        return _binary(b"".join(struct.pack("<I", len(film)) + film for film in films))

    def map(self, request: Request) -> Any:
        key = self.library.resolve(request.path_params["name"])
        session = self.library.recording(key).session
        if self.library.is_live(key):
            return _binary(map_film(session))
        return _binary(self.library.keep(("map", key), lambda: map_film(session)))

    def frame(self, request: Request) -> Any:
        step = _whole(request, "step", 0, 0, MAX_LENGTH)
        size = _whole(request, "size", 288, 9, 1024)
        picture = frame_png(self.library, request.path_params["name"], step, size)
        return Response(picture, media_type="image/png")

    def text(self, request: Request) -> Any:
        step = _whole(request, "step", 0, 0, MAX_LENGTH)
        return _text(frame_text(self.library, request.path_params["name"], step))

    def coding(self, request: Request) -> Any:
        return coding_values(self.library, request.path_params["name"])

    def tiles(self, request: Request) -> Any:
        return {"materials": list(MATERIALS), "sprites": list(SPRITE_NAMES)}

    def sprites(self, request: Request) -> Any:
        unit = _whole(request, "unit", 16, min(_UNITS), max(_UNITS))
        if unit not in _UNITS:
            raise UsageError(f"unit {unit} is not allowed; give 8, 16, 24 or 32")
        return _binary(sprites(unit), _FOREVER)

    def lights(self, request: Request) -> Any:
        return _binary(lights(_whole(request, "steps", 1000, 1, MAX_LENGTH)), _FOREVER)

    def wall(self, request: Request) -> Any:
        query = request.query_params
        offset = _whole(request, "offset", 0, 0, 10**9)
        metric = query.get("metric", lists.METRIC)
        return lists.wall(self.library, query.get("run"), metric, offset)

    def race(self, request: Request) -> Any:
        query = request.query_params
        seed = _whole(request, "seed", -1, 0, 2**31) if "seed" in query else None
        return lists.race(
            self.library,
            run=query.get("run"),
            task=query.get("task"),
            seed=seed,
            ids=_names(request, "episodes"),
        )

    def pair(self, request: Request) -> Any:
        query = request.query_params
        return lists.pair(self.library, query.get("a", ""), query.get("b", ""))

    def search(self, request: Request) -> Any:
        query = request.query_params
        return lists.search(
            self.library, query.get("q", ""), query.get("run"), **_page(request)
        )

    def add_note(self, request: Request, given: Mapping[str, Any]) -> Any:
        key, text, step = self._stored(request), given.get("text"), given.get("step")
        if not isinstance(text, str) or not (step is None or type(step) is int):
            raise UsageError("a note has a text, and a step or null")
        with self.library.store.writing() as connection:
            return add_note(connection, key, text, step)._asdict()

    def delete_note(self, request: Request, given: Mapping[str, Any]) -> Any:
        key = self._stored(request)
        with self.library.store.writing() as connection:
            if not delete_note(connection, key, request.path_params["note"]):
                raise Missing("the note does not exist")
        return {}

    def set_labels(self, request: Request, given: Mapping[str, Any]) -> Any:
        labels = given.get("labels")
        if not isinstance(labels, list):
            raise UsageError("labels must be a list of strings")
        key = self._stored(request)
        with self.library.store.writing() as connection:
            return {"labels": set_labels(connection, key, labels)}

    def play(self, request: Request, given: Mapping[str, Any]) -> Any:
        return self.games.start(given)

    def act(self, request: Request, given: Mapping[str, Any]) -> Any:
        return self.games.act(request.path_params["game"], given)

    def end(self, request: Request, given: Mapping[str, Any]) -> Any:
        return self.games.end(request.path_params["game"])

    def fork(self, request: Request, given: Mapping[str, Any]) -> Any:
        return fork_episode(self.library, self.games.runs, given)

    def cost(self, request: Request, given: Mapping[str, Any]) -> Any:
        a, b = str(given.get("a", "")), str(given.get("b", ""))
        return self.library.keep(
            ("cost", a, b), lambda: lists.cost_of_parting(self.library, a, b)
        )

    def _stored(self, request: Request) -> str:
        key = self.library.resolve(request.path_params["name"])
        if self.library.is_live(key):
            raise UsageError("the episode is in progress; wait for its end")
        return key

    def compare(self, request: Request) -> Any:
        return comparison_page(self.library, _choice(request))

    def figures(self, request: Request) -> Any:
        section = request.query_params.get("section", "")
        return section_figures(self.library, _choice(request), section)


CONSTANTS: Final[Mapping[str, Any]] = {
    "actions": list(ACTIONS),
    "items": list(ITEMS),
    "vitals": list(VITALS),
    "achievements": list(ACHIEVEMENTS),
    "easiest_first": list(EASIEST_FIRST),
    "difficulties": list(DIFFICULTIES),
    "policies": list(POLICIES),
    "labels": list(OPPOSITES),
    "colours": list(COLOURS),
}
"""What a page needs to know of the world."""

_ROUTES: Final = {
    "/api/session": "session",
    "/api/home": "home",
    "/api/runs": "runs",
    "/api/runs/{name}": "run",
    "/api/episodes": "episodes",
    "/api/episodes/{name}": "episode",
    "/api/episodes/{name}/messages": "messages",
    "/api/episodes/{name}/messages/{position:int}": "message",
    "/api/episodes/{name}/film": "film",
    "/api/episodes/{name}/map": "map",
    "/api/episodes/{name}/frame": "frame",
    "/api/episodes/{name}/text": "text",
    "/api/episodes/{name}/coding": "coding",
    "/api/films": "films",
    "/api/tiles": "tiles",
    "/api/sprites": "sprites",
    "/api/lights": "lights",
    "/api/wall": "wall",
    "/api/race": "race",
    "/api/pair": "pair",
    "/api/compare": "compare",
    "/api/figures": "figures",
    "/api/search": "search",
}
_WRITES: Final = {
    ("POST", "/api/episodes/{name}/notes"): "add_note",
    ("DELETE", "/api/episodes/{name}/notes/{note}"): "delete_note",
    ("PUT", "/api/episodes/{name}/labels"): "set_labels",
    ("POST", "/api/play"): "play",
    ("POST", "/api/play/{game}/act"): "act",
    ("POST", "/api/play/{game}/end"): "end",
    ("POST", "/api/fork"): "fork",
    ("POST", "/api/cost"): "cost",
}


@cache
def sprites(unit: int) -> bytes:
    """Return the pixels of all tiles and items, compressed."""
    pixels = sheet(unit)
    head = b"AVS1" + struct.pack("<III", unit, TILES, len(pixels.items))
    return squeeze(head + b"".join(part.tobytes() for part in pixels))


@lru_cache(maxsize=16)
def lights(steps: int) -> bytes:
    """Return the daylight after each step, compressed."""
    found = daylights(np.arange(steps + 1, dtype=np.int32))
    return squeeze(found.astype("<f8").tobytes())


def _page(request: Request) -> dict[str, int]:
    return {
        "offset": _whole(request, "offset", 0, 0, 10**9),
        "limit": _whole(request, "limit", 50, 1, _MOST),
    }


def _whole(request: Request, name: str, default: int, low: int, high: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isdecimal() or len(given) > 12 or not low <= int(given) <= high:
        raise UsageError(f"{name} {given[:40]!r} is not allowed; give {low} to {high}")
    return int(given)


def _names(request: Request, name: str) -> list[str]:
    return [part for part in request.query_params.get(name, "").split(",") if part]


def _choice(request: Request) -> ComparisonChoice:
    query = request.query_params
    values = {name: query.get(name) or None for name in ("metric", "baseline", "seeds")}
    return ComparisonChoice(tuple(_names(request, "names")), **values)


def _text(text: str) -> Response:
    return Response(text, media_type="text/plain; charset=utf-8")


def _binary(data: bytes, caching: str = "no-store") -> Response:
    return Response(data, media_type=_BINARY, headers={"cache-control": caching})


@cache
def _static(name: str) -> tuple[bytes, str] | None:
    body = static_files().get(name)
    return None if body is None else (body, f'"{sha256(body).hexdigest()[:20]}"')


def _static_response(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    found = _static(name)
    if found is None:
        raise HTTPException(404)
    body, tag = found
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


def _refusal(status: int, code: str, detail: str, **headers: str) -> Response:
    return make_response({"detail": detail, "code": code, "errors": None}, status, headers)


_ERRORS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (Missing, 404, "not_found"),
    (EpisodeOver, 409, "over"),
    (UsageError, 422, "invalid"),
    (StoreBusy, 503, "busy"),
    (StoreError, 500, "damaged"),
)


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ForkPrice):
        body = {"detail": str(error), "code": "price", "price_usd": error.usd, "errors": None}
        return make_response(body, 402)
    for kind, status, code in _ERRORS:
        if isinstance(error, kind):
            headers = {"retry-after": "1"} if status == 503 else {}
            return _refusal(status, code, str(error), **headers)
    return _refusal(500, "bug", str(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refusal(error.status_code, "not_found", f"{error.detail}: {request.url.path}")


async def _on_abandoned(request: Request, error: Exception) -> Response:
    assert isinstance(error, BodyAbandoned)
    return to_response(error.refusal)


async def _on_bug(request: Request, error: Exception) -> Response:
    return _refusal(500, "bug", f"a bug of the viewer: {type(error).__name__}: {error}")


def _answer(make: Callable[[Request], Any]) -> Callable[[Request], Response]:
    """Return an endpoint, which Starlette calls in a thread: queries and replays take time."""

    def endpoint(request: Request) -> Response:
        made = make(request)
        response = made if isinstance(made, Response) else make_response(made)
        response.headers.setdefault("cache-control", "no-store")
        is_text = response.media_type in ("application/json", "text/plain; charset=utf-8")
        accepted = "gzip" in request.headers.get("accept-encoding", "")
        if is_text and accepted and len(response.body) > _SMALL:
            response.body = gzip.compress(response.body, 5, mtime=0)
            response.headers["content-encoding"] = "gzip"
            response.headers["content-length"] = str(len(response.body))
        return response

    return endpoint


def _write(
    make: Callable[[Request, Mapping[str, Any]], Any],
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that takes a JSON object."""

    async def endpoint(request: Request) -> Response:
        body = await read_body(request)
        try:
            given = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict):
            raise UsageError("the body is not a JSON object")
        made = await run_in_threadpool(make, request, given)
        return make_response(made, headers={"cache-control": "no-store"})

    return endpoint


async def _follow(library: Library, ending: asyncio.Event) -> AsyncIterator[bytes]:
    """Yield events about runs in progress, when they change."""
    watch, quiet = LiveWatch(library), 0
    while not ending.is_set():
        changed = await run_in_threadpool(watch.changed)
        for name, value in changed.items():
            yield f"event: {name}\ndata: {json.dumps(value)}\n\n".encode()
        quiet = 0 if changed else quiet + 1
        if quiet >= _QUIET:
            yield b": \n\n"
            quiet = 0
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), _EVERY_S)


class _Open:
    """The paths that need no token: the page and its modules, which contain no data."""

    def __contains__(self, path: object) -> bool:
        return not str(path).startswith("/api/")


class _Policy:
    """Middleware that adds the policy to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        await self._app(scope, receive, add)


class _Writes:
    """Middleware that refuses requests to write without the token of a page."""

    def __init__(self, app: ASGIApp, settings: "ViewerSettings", *, writable: bool) -> None:
        self._app, self._token = app, settings.page_token.encode()
        self._writable = writable

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            given = dict(scope["headers"]).get(b"x-page-token", b"")
            if not hmac.compare_digest(given, self._token):
                refusal = _refusal(403, "page_token", "changes need the token of a page")
                await refusal(scope, receive, send)
                return
            if not self._writable:
                detail = "these files were opened for reading; import them into a database"
                await _refusal(403, "forbidden", detail)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def make_app(
    library: Library, settings: "ViewerSettings", games: Games, ending: asyncio.Event
) -> ASGIApp:
    """Return the viewer as an ASGI application; streams end when `ending` is set."""
    guard = Guard(
        _Writes(
            make_routes(library, settings, games, ending), settings, writable=library.writable
        ),
        host=settings.host,
        allowed=settings.allowed_hosts,
        token=settings.token,
        command="assay view",
        open_paths=_Open(),
    )
    return _Policy(guard)


def make_routes(
    library: Library, settings: "ViewerSettings", games: Games, ending: asyncio.Event
) -> ASGIApp:
    """Return the viewer without checks of who asks."""
    answers = _Answers(library, settings, games)
    routes: list[BaseRoute] = [
        Route(path, _answer(getattr(answers, name))) for path, name in _ROUTES.items()
    ]
    routes += [
        Route(path, _write(getattr(answers, name)), methods=[method])
        for (method, path), name in _WRITES.items()
    ]

    async def live(request: Request) -> Response:
        stream = _follow(library, ending)
        headers = {"cache-control": "no-store"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    routes.append(Route("/api/live", live))
    routes += [Route("/", _static_response), Route("/static/{name}", _static_response)]
    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: _on_http_error,
            BodyAbandoned: _on_abandoned,
            AssayError: _on_error,
            Exception: _on_bug,
        },
    )
    app.router.redirect_slashes = False
    return app


def _new_token() -> str:
    return secrets.token_urlsafe(24)


@dataclass(frozen=True, kw_only=True)
class ViewerSettings(HostSettings):
    """Settings of the viewer."""

    port: int = DEFAULT_PORT
    token: str = field(default_factory=_new_token, repr=False)
    """Token that every request for data must send."""
    page_token: str = field(default_factory=_new_token, repr=False)
    """Token that requests to write must send too; only a page of this server can read it."""
    start: str = "#/"
    """Page that opens first."""
    budget_usd: float = 0.0
    """Dollars that forks with remote models may spend."""


@dataclass(frozen=True)
class RunningViewer:
    """A viewer that accepts requests."""

    address: str
    """For example http://127.0.0.1:8905"""
    settings: ViewerSettings

    @property
    def url(self) -> str:
        """Address of the first page, with the token."""
        start = self.settings.start
        mark = "&" if "?" in start else "?"
        return f"{self.address}/{start}{mark}token={self.settings.token}"


def run(
    library: Library, settings: ViewerSettings, announce: Callable[[RunningViewer], None]
) -> None:
    """Serve until SIGINT or SIGTERM; call `announce` when browsers can connect."""
    with _bind(library, settings) as (server, listener, viewer):
        server.announce = lambda: announce(viewer)
        server.run([listener])


@contextlib.contextmanager
def running(library: Library, settings: ViewerSettings) -> Iterator[RunningViewer]:
    """Serve in a thread for the duration of the block."""
    with (
        _bind(library, settings) as (server, listener, viewer),
        serve_in_thread(server, listener),
    ):
        yield viewer


@contextlib.contextmanager
def _bind(
    library: Library, settings: ViewerSettings
) -> Iterator[tuple[Server, socket.socket, RunningViewer]]:
    with open_listener(settings.host, settings.port) as listener:
        ending, games = asyncio.Event(), Games(library, library.runs)
        server = make_server(make_app(library, settings, games, ending))

        def stop() -> None:
            ending.set()
            games.close()

        server.ending = stop
        yield server, listener, RunningViewer(format_address(settings.host, listener), settings)
