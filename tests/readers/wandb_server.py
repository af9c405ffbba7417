"""A server that speaks as much of W&B's GraphQL as its package needs to read runs.

The queries are those that wandb 0.31.0 sends, and the shapes those that it accepts.
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

__all__ = ["serve_runs"]


@contextmanager
def serve_runs(runs: Mapping[str, Mapping[str, Any]], key: str) -> Iterator[str]:
    """The address of a server that has runs by their ids, for who knows a key.

    A run has `facts`, as GraphQL names them, and `rows` with a `_step` each.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(runs, key))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(runs: Mapping[str, Mapping[str, Any]], key: str) -> type[BaseHTTPRequestHandler]:
    import base64

    expected = "Basic " + base64.b64encode(f"api:{key}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *words: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path != "/graphql":
                self._reply(404, {})
            elif self.headers.get("Authorization") != expected:
                self._reply(401, {"errors": [{"message": "user is not logged in"}]})
            else:
                self._reply(200, {"data": _answer(runs, json.loads(body))})

        def _reply(self, status: int, value: Any) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


def _answer(runs: Mapping[str, Mapping[str, Any]], asked: Any) -> Any:
    query, about = asked["query"], asked.get("variables") or {}
    if "viewer {" in query:
        return {
            "viewer": {
                **{"id": "v", "username": "me", "entity": "me", "email": "me@here"},
                **{"flags": "{}", "teams": {"edges": []}},
            }
        }
    run = runs.get(about.get("name") or about.get("run") or about.get("runName") or "")
    return {"project": {"internalId": "1", "run": run and _run(run, about)}}


def _run(run: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    rows = run["rows"]
    low, high = int(about.get("minStep", 0)), int(about.get("maxStep", 0))
    page = [json.dumps(row) for row in rows if low <= row["_step"] < high]
    return {
        **{"id": "r", "projectId": 1, "tags": [], "sweepName": None, "jobType": None},
        **{"readOnly": False, "createdAt": "2026-01-02T03:04:05Z", "description": ""},
        **{"heartbeatAt": "2026-01-02T03:04:05Z", "notes": "", "systemMetrics": "{}"},
        **{"summaryMetrics": "{}", "user": {"name": "me", "username": "me"}},
        "historyLineCount": len(rows),
        "historyKeys": {"lastStep": rows[-1]["_step"], "keys": {}},
        "parquetHistory": {"liveData": [], "parquetUrls": []},
        "history": page[: int(about.get("pageSize", 0))],
        **run["facts"],
    }
