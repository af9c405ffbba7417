"""A page in one file: the viewer with some episodes and a comparison, and their record.

The file contains the record of the episodes (`assay-trace/1`), and the answers that a server
would give about a database with this record alone. The answers follow from the record, so a
reader can rebuild the whole text and compare: `rebuild` is that check. Nothing in the file
depends on when or where it was made.
"""

import asyncio
import gzip
import io
import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any, Final
from urllib.parse import quote

from assay._version import __version__
from assay.errors import UsageError
from assay.report.viewer.library import Library, squeeze
from assay.report.viewer.modules import join_modules, page_modules, static_files
from assay.report.viewer.play import Games
from assay.report.viewer.server import ViewerSettings, make_routes

FORMAT: Final = "assay-page/1"
MOST_EPISODES: Final = 64
_UNITS: Final = (8, 16)
_MOST_MESSAGES: Final = 100_000
_MOST_RECORD: Final = 1 << 30
_DATA: Final = re.compile(
    r'<script type="application/json" id="assay-data">(.*?)</script>', re.DOTALL
)
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""Characters that could end the element in which the data is."""


def export_page(
    library: Library, keys: Sequence[str], record: bytes, repeated: Sequence[str]
) -> str:
    """Return the page about all episodes of a database with this record alone.

    Args:
        library: The database.
        keys: Its episodes.
        record: The record that it was made from.
        repeated: What the page repeats without being able to recompute it.
    """
    data = {
        "format": FORMAT,
        "assay": __version__,
        "entry": "#/",
        "repeated": list(repeated),
        **asyncio.run(_answers(library, keys)),
        "record": b64encode(squeeze(record)).decode(),
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for char, code in _ESCAPED.items():
        text = text.replace(char, code)
    modules = page_modules()
    script = join_modules(modules, "main.js") if "main.js" in modules else ""
    # The text of an element must not contain its own end.
    script = script.replace("</script", "<\\/script")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types assay-svg"
    )
    style = static_files().get("style.css", b"").decode()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>assay: {len(keys)} episodes</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<main id="page"><noscript>This page needs JavaScript.</noscript></main>\n'
        f'<script type="application/json" id="assay-data">{text}</script>\n'
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def read_record(page: str) -> bytes:
    """Return the record in a page.

    Raises:
        UsageError: The text is not a page of the viewer.
    """
    found = _DATA.search(page)
    try:
        data = json.loads(found[1]) if found else {}
        if data.get("format") != FORMAT:
            raise UsageError(f"the file is not a page of 'assay view' ({FORMAT})")
        with gzip.open(io.BytesIO(b64decode(data["record"], validate=True))) as stream:
            record = stream.read(_MOST_RECORD + 1)
    except UsageError:
        raise
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OSError,
        EOFError,
        zlib.error,
    ) as error:
        raise UsageError(f"the record in the page is damaged: {error}") from error
    if len(record) > _MOST_RECORD:
        raise UsageError("the record in the page is too large")
    return record


def first_difference(given: str, rebuilt: str) -> str | None:
    """Return where two texts differ, in words; None if they are equal."""
    if given == rebuilt:
        return None
    place = next(
        (place for place, (a, b) in enumerate(zip(given, rebuilt, strict=False)) if a != b),
        min(len(given), len(rebuilt)),
    )
    around = slice(max(0, place - 30), place + 30)
    return f"character {place:,}: {given[around]!r} should be {rebuilt[around]!r}"


async def _answers(library: Library, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the answers that the pages ask for, by path."""
    settings = ViewerSettings()
    ask = _Asker(make_routes(library, settings, Games(library, library.runs), asyncio.Event()))
    await ask.json("/api/session")
    await ask.json("/api/tiles")
    await ask.json("/api/episodes?sort=-created_at&offset=0&limit=50")
    runs = await ask.json("/api/runs?offset=0&limit=50")
    home = await ask.json("/api/home")
    longest = 1
    for key in keys:
        episode = await ask.json(f"/api/episodes/{key}")
        await ask.json(f"/api/episodes/{key}/messages?from=0&limit={_MOST_MESSAGES}")
        if episode["coding"]:
            await ask.json(f"/api/episodes/{key}/coding")
        if episode["film"]["frames"]:
            await ask.binary(f"/api/episodes/{key}/film")
            longest = max(longest, episode["steps"])
            await ask.binary(f"/api/lights?steps={_rounded(episode['steps'])}")
    for unit in _UNITS:
        await ask.binary(f"/api/sprites?unit={unit}")
    for run in runs["rows"]:
        name = quote(run["id"], safe=_PLAIN)
        await ask.json(f"/api/runs/{name}")
        await ask.json(f"/api/episodes?run={name}&sort=-created_at&offset=0&limit=50")
        found = (
            home if home["run"]["id"] == run["id"] else await ask.json(f"/api/home?run={name}")
        )
        await _ask_wall(ask, name, found["wall"])
        if found["leaderboard"] is not None:
            report = await ask.json(f"/api/compare?names={name}")
            for section in report["sections"]:
                if section["figures"]:
                    title = quote(section["title"], safe=_PLAIN)
                    await ask.json(f"/api/figures?names={name}&section={title}")
    return {"json": ask.answers, "bytes": ask.binaries}


async def _ask_wall(ask: "_Asker", run: str, wall: Mapping[str, Any]) -> None:
    films = [cell["id"] for row in wall["cells"] for cell in row if cell and cell["film"]]
    if films:
        await ask.binary(f"/api/films?episodes={','.join(films)}&frames=60")
        await ask.binary(f"/api/lights?steps={_rounded(wall['steps'])}")
    for column, world in enumerate(wall["worlds"]):
        task, seed = quote(world["task"], safe=_PLAIN), world["seed"]
        if any(row[column] and row[column]["film"] for row in wall["cells"]):
            await ask.json(f"/api/race?run={run}&task={task}&seed={seed}")
        ids = [row[column]["id"] for row in wall["cells"] if row[column]]
        for a in ids:
            for b in ids:
                if a != b:
                    await ask.json(f"/api/pair?a={a}&b={b}")


_PLAIN: Final = "!'()*~-._"
"""Characters that a page does not escape in an address."""


def _rounded(steps: int) -> int:
    return max(1000, -(-steps // 1000) * 1000)


class _Asker:
    """Asks an application in this process, and keeps its answers."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.answers: dict[str, Any] = {}
        self.binaries: dict[str, str] = {}

    async def json(self, path: str) -> Any:
        """Return an answer, and keep it; a refusal is an error."""
        if path not in self.answers:
            self.answers[path] = json.loads(await self._get(path))
        return self.answers[path]

    async def binary(self, path: str) -> None:
        """Keep an answer that is not JSON."""
        if path not in self.binaries:
            self.binaries[path] = b64encode(await self._get(path)).decode()

    async def _get(self, path: str) -> bytes:
        plain, _, query = path.partition("?")
        parts: list[bytes] = []
        status = 0

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "server": ("localhost", 80),
            "root_path": "",
            "headers": [],
            "path": plain,
            "raw_path": plain.encode(),
            "query_string": query.encode(),
        }
        await self._app(scope, receive, send)
        if status != 200:
            said = b"".join(parts).decode(errors="replace")
            raise UsageError(f"{path} cannot be exported: {said[:500]}")
        return b"".join(parts)
