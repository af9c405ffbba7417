"""Script for a sandbox, with only the standard library: forwards a port to a Unix socket.

    python3 forwarder.py plan.json

The plan has the path of the socket, the files to write first, and the agent: its argv,
environment and standard input. @PORT@ is replaced by the port in all of them except standard
input. The exit code is the agent's.
"""

import asyncio
import json
import os
import sys
from typing import Any


async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy bytes until one side ends."""
    try:
        while chunk := await source.read(65536):
            sink.write(chunk)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
    except (ConnectionError, RuntimeError):
        sink.close()


async def main(plan: dict[str, Any]) -> int:
    """Forward connections while the agent runs; return its exit code."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            model_reader, model_writer = await asyncio.open_unix_connection(plan["socket"])
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(copy(reader, model_writer), copy(model_reader, writer))
        finally:
            model_writer.close()
            writer.close()

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    port = str(server.sockets[0].getsockname()[1])

    def fill_port(text: str) -> str:
        return text.replace("@PORT@", port)

    for path, text in plan["files"].items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(fill_port(text))
    variables = {name: fill_port(value) for name, value in plan["environment"].items()}
    child = await asyncio.create_subprocess_exec(
        *map(fill_port, plan["argv"]),
        stdin=asyncio.subprocess.PIPE if plan["stdin"] else asyncio.subprocess.DEVNULL,
        env={**os.environ, **variables},
    )
    await child.communicate(plan["stdin"].encode() or None)
    code = child.returncode or 0
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        sys.exit(asyncio.run(main(json.load(file))))
