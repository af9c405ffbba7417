"""Unix socket relay that runs in a remote sandbox, using only the standard library.

    python3 relay.py SOCKET

Data sent to the socket goes to standard output; data from standard input goes back. A piece is
the number of its connection, its length, and that many bytes; a length of 0 ends the
connection. The relay prints `ready` when it listens, and ends with its standard input.
"""

import asyncio
import os
import struct
import sys

HEADER = struct.Struct(">II")
READY = b"ready\n"
CHUNK = 65536


def encode_piece(number: int, content: bytes) -> bytes:
    """Encode one piece for the stream."""
    return HEADER.pack(number, len(content)) + content


async def main(path: str) -> None:
    """Relay until standard input ends."""
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin.buffer)
    writers: dict[int, asyncio.StreamWriter] = {}
    turn = asyncio.Lock()
    last = 0

    def print_out(content: bytes) -> None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()

    async def send(content: bytes) -> None:
        async with turn:
            await loop.run_in_executor(None, print_out, content)

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal last
        last += 1
        number = last
        writers[number] = writer
        try:
            while chunk := await reader.read(CHUNK):
                await send(encode_piece(number, chunk))
        except ConnectionError:
            pass
        await send(encode_piece(number, b""))

    await asyncio.start_unix_server(on_connection, path)
    os.chmod(path, 0o666)
    await send(READY)
    while True:
        try:
            number, length = HEADER.unpack(await stdin.readexactly(HEADER.size))
            content = await stdin.readexactly(length)
        except asyncio.IncompleteReadError:
            return
        writer = writers.get(number)
        if writer is None:
            continue
        try:
            if content:
                writer.write(content)
                await writer.drain()
            else:
                writers.pop(number).close()
        except ConnectionError:
            writers.pop(number, None)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
