"""Cache of replies, so that repeating a run costs nothing.

A SQLite file that several processes may share. The key covers everything a reply depends on:
the model and its address, the messages, the tools, the settings, the seed, the replicate.
"""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from assay.core.canonical_json import canonical_json, content_hash
from assay.errors import StoreError
from assay.types import ChatModel, ChatReply, ChatRequest, Message, Usage

T = TypeVar("T")
_PATIENCE = 30.0
"""Seconds to wait for another process that writes."""


def request_key(request: ChatRequest, replicate: int = 0, origin: str = "") -> str:
    """Compute the cache key of a request; `origin` is the address and fixed request fields."""
    return content_hash(
        canonical_json(
            [
                request.model,
                [message.hash for message in request.messages],
                request.tools.hash,
                request.temperature,
                request.max_tokens,
                request.seed,
                replicate,
                origin,
            ]
        )
    )


class ReplyCache:
    """Cached replies by request.

    Raises:
        StoreError: The file cannot be used.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._file = self._translate_errors(self._open)

    def get(
        self, request: ChatRequest, replicate: int = 0, origin: str = ""
    ) -> ChatReply | None:
        """Return the cached reply to a request, with its original cost; None if absent."""
        key = request_key(request, replicate, origin)
        query = "SELECT reply FROM replies WHERE key = ?"
        row = self._translate_errors(lambda: self._file.execute(query, (key,)).fetchone())
        return None if row is None else _decode(row[0])

    def put(
        self, request: ChatRequest, reply: ChatReply, replicate: int = 0, origin: str = ""
    ) -> None:
        """Store a reply, unless the request has one."""
        row = (request_key(request, replicate, origin), request.model, _encode(reply))
        insert = "INSERT OR IGNORE INTO replies (key, model, reply) VALUES (?, ?, ?)"
        self._translate_errors(lambda: self._file.execute(insert, row))

    def __len__(self) -> int:
        count = "SELECT count(*) FROM replies"
        return int(self._translate_errors(lambda: self._file.execute(count).fetchone())[0])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(
            self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        try:
            # Safe without syncing: a reply lost in a crash is only requested again.
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = OFF")
            file.execute(
                "CREATE TABLE IF NOT EXISTS replies "
                "(key TEXT PRIMARY KEY, model TEXT NOT NULL, reply TEXT NOT NULL) WITHOUT ROWID"
            )
        except BaseException:
            file.close()
            raise
        return file

    def _translate_errors(self, do: Callable[[], T]) -> T:
        try:
            return do()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"cannot use the reply cache {str(self._path)!r}: {error}; "
                "give another file, or delete this one"
            ) from error


class CachedModel:
    """A `ChatModel` that calls another one only for requests that are not in the cache.

    A cached reply has zero cost and latency. A model may have an `origin`: the same name at
    another address, or with other fixed request fields, is a different model.
    """

    def __init__(self, model: ChatModel, cache: ReplyCache, *, replicate: int = 0) -> None:
        self.name, self.provider = model.name, model.provider
        self._model, self._cache = model, cache
        self._key = (replicate, str(getattr(model, "origin", "")))

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the cached reply, or call the model."""
        cached = self._cache.get(request, *self._key)
        if cached is not None:
            return replace(cached, cost_usd=0.0, latency_s=0.0, waited_s=0.0, retries=0)
        reply = await self._model.reply(request)
        self._cache.put(request, reply, *self._key)
        return reply

    async def close(self) -> None:
        """Close the model; the cache stays open for other models."""
        await self._model.close()


def _encode(reply: ChatReply) -> str:
    fields: dict[str, Any] = {
        "message": reply.message.value,
        "finish_reason": reply.finish_reason,
        "usage": asdict(reply.usage),
        "cost_usd": reply.cost_usd,
        "latency_s": reply.latency_s,
    }
    return canonical_json(fields).decode()


def _decode(text: str) -> ChatReply:
    fields = json.loads(text)
    return ChatReply(
        message=Message(fields["message"]),
        finish_reason=fields["finish_reason"],
        usage=Usage(**fields["usage"]),
        cost_usd=fields["cost_usd"],
        latency_s=fields["latency_s"],
    )
