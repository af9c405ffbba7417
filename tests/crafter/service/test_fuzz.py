"""No request is answered with a 500 or stops the service."""

import json
import random
import string
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from assay.core.refusal import MAX_BODY

from .calls import ENV, ask, raw, start, step_body

POSTS = [f"{ENV}/{name}" for name in ("initialize", "step", "terminate", "restore", "batch")]
HUGE = "9" * 5000
BODIES: dict[str, bytes] = {
    "nothing": b"",
    "blank": b" \n",
    "text": b"hello",
    "null": b"null",
    "number": b"3",
    "string": b'"step"',
    "true": b"true",
    "NaN": b"NaN",
    "infinity": b'{"config": {"seed": Infinity, "length": -Infinity}}',
    "NaN inside": b'{"config": {"difficulty": {"tree_chance": NaN}}}',
    "NaN reward": b'{"snapshot": "QUJD", "total_reward_episode": NaN}',
    "huge int": f'{{"config": {{"seed": {HUGE}, "length": {HUGE}}}}}'.encode(),
    "long int": f'{{"config": {{"seed": {"9" * 4000}}}}}'.encode(),
    "int in table": f'{{"config": {{"difficulty": {{"tree_chance": {"9" * 400}}}}}}}'.encode(),
    "huge float": b'{"config": {"difficulty": {"tree_chance": 1e999}}}',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 50_000,
    "deep and closed": b"[" * 150 + b"]" * 150,
    "deep in a table": b'{"config": {"difficulty": {"tree_chance": '
    + b"[" * 90
    + b"]" * 90
    + b"}}}",
    "deep state": b'{"initial_state": {"a": ' + b"[" * 180 + b"]" * 180 + b"}}",
    "not UTF-8": b'{"env_id": "\xff\xfe"}',
    "surrogate": b'{"env_id": "\\ud800", "action": {"tool_calls": []}}',
    "zero byte": b'{"env_id": "\\u0000", "action": {"tool_calls": [{"tool": "\\u0000"}]}}',
    "UTF-16": '{"config": {"seed": 1}}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"config": {"seed": 1}}',
    "keys twice": b'{"config": {"seed": 1, "seed": 2}}',
    "cut": b'{"config": {"seed": 1',
    "two values": b"{} {}",
    "comment": b"{/* */}",
    "long key": b'{"config": {"' + b"k" * 100_000 + b'": 1}}',
    "long name": b'{"config": {"difficulty": "' + b"n" * 100_000 + b'"}}',
    "long parameter": b'{"config": {"difficulty": {"' + b"n" * 100_000 + b'": 1}}}',
    "long id": b'{"env_id": "' + b"x" * 100_000 + b'"}',
    "many keys": json.dumps({f"key{i}": i for i in range(20_000)}).encode(),
    "many items": b"[" + b"{}," * 250 + b"{}]",
    "many calls": json.dumps(step_body("x", *[99] * 900)).encode(),
    "snapshot of bytes": b'{"snapshot": "' + b"A" * 39_000 + b'"}',
    "snapshot too long": b'{"snapshot": "' + b"A" * 50_000 + b'"}',
    "snapshot not ascii": '{"snapshot": "ééé"}'.encode(),
    "markup": b'{"config": {"difficulty": "<script>[bold]\\u001b[31m"}}',
}
TYPES = [
    *(None, "text/plain", "application/xml", "multipart/form-data; boundary=x", ""),
    *("application/x-www-form-urlencoded", "application/json; charset=utf-16", "\x80\xff"),
]


@pytest.mark.parametrize("name", BODIES)
def test_random_request_body_is_rejected_or_answered(address: str, name: str) -> None:
    for path in POSTS:
        answer = ask(address, path, BODIES[name])
        assert answer.status in (200, 404, 413, 422), (path, answer)
        if answer.status != 200:
            assert answer.json["detail"].isprintable()
            assert len(answer.json["detail"]) < 10_000
    assert ask(address, "/health").status == 200


@pytest.mark.parametrize("kind", TYPES, ids=repr)
def test_content_type_of_the_body_is_ignored(address: str, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = ask(address, f"{ENV}/initialize", {"config": {"seed": 3}}, headers=headers)
    assert answer.status == 200
    assert answer.json["info"]["seed"] == 3


@pytest.mark.parametrize(
    "value",
    [
        "",
        "%00",
        "%ff%fe",
        "%ED%A0%80",
        "a" * 20_000,
        "%",
        "a&env_id=b",
        "\u2028",
        "../x",
        "%0d%0a",
    ],
    ids=lambda value: str(value)[:10],
)
def test_random_query_is_rejected_or_answered(address: str, value: str) -> None:
    for name in ("checkpoint", "metadata"):
        answer = ask(address, f"{ENV}/{name}?env_id={quote(value, safe='%&=')}")
        assert answer.status == 404
        assert answer.json["code"] == "unknown_instance"
        assert ask(address, f"{ENV}/{name}?{quote(value, safe='%&=')}").status in (
            200,
            404,
            422,
        )


@pytest.mark.parametrize("size", [0, 1, MAX_BODY, MAX_BODY + 1])
def test_a_chunked_body_has_the_same_limit(address: str, size: int) -> None:
    head = f"POST {ENV}/initialize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    chunks, left = b"", size
    while left:
        part = min(left, 70_000)
        chunks += b"%x\r\n" % part + b" " * part + b"\r\n"
        left -= part
    data = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    status = raw(address, data).split(b" ")[1]
    assert status == {0: b"200", MAX_BODY + 1: b"413"}.get(size, b"422")


HEADS = {
    "length too large": b"Content-Length: 99999999999999999999\r\n\r\n",
    "length of letters": b"Content-Length: ten\r\n\r\n",
    "negative length": b"Content-Length: -1\r\n\r\n",
    "two lengths": b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "both": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "bad chunk": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "unknown coding": b"Transfer-Encoding: gzip\r\n\r\n{}",
    "expect": b"Expect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    "upgrade": b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{}",
    "zero byte": b"X: \x00\r\n\r\n",
    "no end": b"Content-Length: 5\r\n\r\n{}",
}


@pytest.mark.parametrize("name", HEADS)
def test_random_headers_are_rejected_or_answered(address: str, name: str) -> None:
    line = f"POST {ENV}/initialize HTTP/1.1\r\nHost: localhost\r\n".encode()
    answer = raw(address, line + HEADS[name], wait=0.3)
    assert b" 500 " not in answer.split(b"\r\n")[0]
    assert ask(address, "/health").status == 200


@pytest.mark.parametrize(
    "line",
    [
        *(b"GET", b"\r\n\r\n", b"\x00" * 100, b"GET http://[ HTTP/1.1", b"GET * HTTP/1.1"),
        *(
            b"OPTIONS * HTTP/1.1",
            b"GET /\xff HTTP/1.1",
            b"GET /%ff HTTP/1.1",
            b"PRI * HTTP/2.0",
        ),
        *(b"CONNECT a:1 HTTP/1.1", b"BREW /health HTTP/1.1", b"GET /health HTTP/9.9"),
        *(b"GET /env/%00/step HTTP/1.1", b"GET //evil.example/ HTTP/1.1", b"GET ? HTTP/1.1"),
    ],
    ids=repr,
)
def test_random_request_line_is_rejected_or_answered(address: str, line: bytes) -> None:
    answer = raw(address, line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n", wait=0.3)
    assert b" 500 " not in answer.split(b"\r\n")[0]
    assert ask(address, "/health").status == 200


def mutations(rng: random.Random, env_id: str, count: int) -> Iterator[tuple[str, Any]]:
    """Valid requests with a part replaced, removed or duplicated."""
    odd: list[Any] = [
        *(None, True, -1, 17, 2**63, 2**64, 1e308, "", "x" * 200, [], {}, [[]], {"a": {}}),
        *("noop", 0.5, "\u202e", "interact", ["view"], {"tree_chance": -1}),
    ]
    good: list[tuple[str, Any]] = [
        ("initialize", {"config": {"seed": 1, "difficulty": "easy", "length": 5}}),
        ("initialize", {"task_instance": {"metadata": {"seed": 1, "difficulty": "hard"}}}),
        ("step", step_body(env_id, 0, "do", request_id="r")),
        ("batch", [step_body(env_id, 1), step_body(env_id, 2)]),
        ("restore", {"snapshot": "QUJD", "total_reward_episode": 1.5, "include": ["view"]}),
    ]
    for _ in range(count):
        name, body = rng.choice(good)
        body = json.loads(json.dumps(body))
        for _ in range(rng.randint(1, 3)):
            body = mutated(rng, body, odd)
        yield name, body


def mutated(rng: random.Random, value: Any, odd: list[Any]) -> Any:
    if not value or not isinstance(value, (dict, list)) or rng.random() < 0.1:
        return rng.choice(odd)
    if isinstance(value, list):
        where = rng.randrange(len(value))
        return [*value[:where], mutated(rng, value[where], odd), *value[where + 1 :]]
    key = rng.choice(sorted(value))
    match rng.randrange(6):
        case 0:
            return {name: value[name] for name in value if name != key}
        case 1:
            return {**value, "".join(rng.choices(string.printable, k=5)): rng.choice(odd)}
        case _:
            return {**value, key: mutated(rng, value[key], odd)}


@pytest.mark.extras
def test_nearly_valid_requests_are_rejected_or_answered(address: str) -> None:
    env_id = start(address, seed=1)["env_id"]
    seen = set()
    for name, body in mutations(random.Random(7), env_id, 600):
        answer = ask(address, f"{ENV}/{name}", json.dumps(body).encode())
        seen.add(answer.status)
        assert answer.status in (200, 404, 409, 413, 422), (name, body, answer)
    assert {200, 422} <= seen
