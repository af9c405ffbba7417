from pathlib import Path
from typing import Any

import pytest

from assay.errors import StoreError
from assay.models.cache import ReplyCache, request_key
from assay.models.client import RemoteModel
from assay.types import ChatReply, Encoded, Message, Usage

from .server import entry, request

REPLY = ChatReply(
    Message({"role": "assistant", "content": "go \ud800 <b>"}),
    "tool_calls",
    Usage(10, 5, 2, 1),
    cost_usd=0.25,
    latency_s=1.5,
)


def test_cached_reply_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "new" / "replies.sqlite"
    with ReplyCache(path) as cache:
        assert cache.get(request()) is None
        cache.put(request(), REPLY)
    with ReplyCache(path) as cache:
        assert cache.get(request()) == REPLY
        assert len(cache) == 1


def test_first_cached_reply_is_kept(tmp_path: Path) -> None:
    with ReplyCache(tmp_path / "replies") as cache, ReplyCache(tmp_path / "replies") as other:
        cache.put(request(), REPLY)
        other.put(request(), ChatReply(Message({"role": "assistant", "content": "other"})))
        assert other.get(request()) == REPLY


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "other"},
        {"messages": []},
        {"tools": Encoded([])},
        {"temperature": 0.5},
        {"max_tokens": 65},
        {"seed": 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_cache_key_includes_everything_a_reply_depends_on(changes: dict[str, Any]) -> None:
    assert request_key(request(**changes)) != request_key(request())


def test_replicates_have_separate_cache_entries(tmp_path: Path) -> None:
    with ReplyCache(tmp_path / "replies") as cache:
        cache.put(request(), REPLY, replicate=1)
        assert cache.get(request()) is None
        assert cache.get(request(), replicate=1) == REPLY


def test_invalid_cache_file_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, and nothing else, for quite a while " * 20)
    with pytest.raises(StoreError, match="notes"):
        ReplyCache(path)


def test_same_model_name_at_another_address_is_cached_separately(tmp_path: Path) -> None:
    here, there = (RemoteModel(entry(), key=None, base_url=f"http://{n}") for n in "ab")
    other = RemoteModel(entry(send={"top_p": 0.5}), key=None, base_url="http://a")
    assert len({here.origin, there.origin, other.origin}) == 3
    with ReplyCache(tmp_path / "replies") as cache:
        cache.put(request(), REPLY, origin=here.origin)
        assert cache.get(request(), origin=here.origin) == REPLY
        assert cache.get(request(), origin=there.origin) is None
