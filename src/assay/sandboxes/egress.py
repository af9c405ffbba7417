"""Outgoing HTTP and HTTPS of a sandbox, through a proxy in this process.

A sandbox has a network namespace without routes. If the user allows a network, a socket is
opened on a port inside that namespace and served from here, so that commands need only the
usual proxy variables. Names are resolved here, and the checked address is the one connected to:
a second answer from a name server has no effect. Loopback, private, link-local and metadata
addresses can be reached only if the user named them.
"""

import asyncio
import fcntl
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple

from assay.errors import SandboxUnavailable
from assay.sandboxes.base import TrialFinding

PUBLIC: Final = "public"
"""All public addresses, on the HTTP and HTTPS ports."""
_PORT: Final = 3128
_PUBLIC_PORTS: Final = frozenset({80, 443})
_DESTINATION: Final = re.compile(
    r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?"
)
_METADATA: Final = frozenset({IPv4Address("168.63.129.16")})
"""A public address that is the host of Azure virtual machines."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_MAX_HEAD: Final = 65536
_MAX_CONNECTIONS: Final = 64
_MAX_REFUSED: Final = 10
_CONNECT_S: Final = 30.0
_OWNER_OF_NAMESPACE: Final = 0xB701
"""The ioctl NS_GET_USERNS."""
_HELPER: Final = """
import ctypes, os, socket, sys
*namespaces, channel, port = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
for namespace in namespaces:
    if libc.setns(namespace, 0):
        sys.exit(f"setns: {os.strerror(ctypes.get_errno())}")
listener = socket.create_server(("0.0.0.0", port), backlog=64)
socket.send_fds(socket.socket(fileno=channel), [b"x"], [listener.fileno()])
"""


class Destination(NamedTuple):
    """A host that the user allows."""

    host: str
    port: int | None
    """None for every port."""


def parse_destination(text: str) -> Destination:
    """Parse `public`, `HOST` or `HOST:PORT`, or raise ValueError."""
    found = _DESTINATION.fullmatch(text)
    if found is None or (found["port"] and not 0 < int(found["port"]) < 65536):
        raise ValueError(f"{text!r} is neither '{PUBLIC}' nor HOST or HOST:PORT")
    port = int(found["port"]) if found["port"] else None
    return Destination(found["host"].strip("[]").lower(), port)


def describe_network(destinations: Sequence[str]) -> str:
    """Describe what a sandbox with these destinations can reach."""
    if not destinations:
        return "network namespace without a way out"
    named = [
        "public addresses" if destination == PUBLIC else destination
        for destination in destinations
    ]
    return f"HTTP(S) proxy to {', '.join(named)}"


def proxy_variables(destinations: Sequence[str]) -> Mapping[str, str]:
    """Return the variables that point commands to the proxy; empty without destinations."""
    if not destinations:
        return {}
    address, own = f"http://127.0.0.1:{_PORT}", "localhost,127.0.0.1,::1"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return {**dict.fromkeys(names, address), "no_proxy": own, "NO_PROXY": own}


class Egress:
    """The proxy of one sandbox."""

    def __init__(self, destinations: Sequence[str]) -> None:
        named = [text for text in destinations if text != PUBLIC]
        self._is_public = PUBLIC in destinations
        self._named = frozenset(map(parse_destination, named))
        self._refused: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serve(self, process: int) -> AsyncIterator[None]:
        """Serve the network namespace of a process during the block.

        Raises:
            SandboxUnavailable: Its namespace cannot be entered from here.
        """
        if not self._is_public and not self._named:
            yield
            return
        listener = await asyncio.to_thread(_open_listener, process)
        server = await asyncio.start_server(self._accept, sock=listener, limit=_MAX_HEAD)
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def findings(self) -> list[TrialFinding]:
        """Return the destinations that were refused since the last call."""
        refused, self._refused = self._refused, {}
        if not refused:
            return []
        return [TrialFinding("network_refused", f"not allowed: {', '.join(refused)}")]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) > _MAX_CONNECTIONS:
                _send_answer(writer, 503, f"more than {_MAX_CONNECTIONS} connections at once")
            else:
                await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client went away, or does not speak HTTP
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        request = _parse_head(head.decode("latin-1"))
        if request is None:
            _send_answer(writer, 400, "only CONNECT HOST:PORT and http:// addresses are served")
            return
        try:
            remote = await asyncio.wait_for(self._connect(request.target), _CONNECT_S)
        except PermissionError as error:
            if len(self._refused) < _MAX_REFUSED:
                self._refused[f"{request.target.host[:100]}:{request.target.port}"] = None
            _send_answer(writer, 403, str(error))
            return
        except (OSError, TimeoutError) as error:
            _send_answer(writer, 502, f"cannot reach it: {type(error).__name__}")
            return
        remote_reader, remote_writer = await asyncio.open_connection(sock=remote)
        try:
            if request.forwarded is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                remote_writer.write(request.forwarded)
            await asyncio.gather(_pump(reader, remote_writer), _pump(remote_reader, writer))
        finally:
            remote_writer.close()

    async def _connect(self, target: Destination) -> socket.socket:
        """Connect to the first allowed address; raise PermissionError if there is none."""
        loop = asyncio.get_running_loop()
        assert target.port is not None
        is_named = not self._named.isdisjoint({target, target._replace(port=None)})
        if not is_named and not (self._is_public and target.port in _PUBLIC_PORTS):
            raise PermissionError(
                f"{target.host}:{target.port} is not allowed; name it with --allow-network"
            )
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        failure: OSError = PermissionError(f"{target.host} has no public address")
        for family, kind, protocol, _, address in found:
            if not is_named and not _is_public(str(address[0])):
                continue
            client = socket.socket(family, kind, protocol)
            client.setblocking(False)
            try:
                await loop.sock_connect(client, address)
            except OSError as error:
                failure = error
                client.close()
                continue
            except BaseException:
                client.close()
                raise
            # A public address of this machine would give access to its own services.
            if not is_named and client.getsockname()[0] == client.getpeername()[0]:
                client.close()
                failure = PermissionError(f"{target.host} is this machine")
                continue
            return client
        raise failure


class _ProxyRequest(NamedTuple):
    target: Destination
    forwarded: bytes | None
    """The request head to forward; None for a tunnel."""


def _parse_head(head: str) -> _ProxyRequest | None:
    """Parse a request; return None if the proxy does not serve it."""
    line, _, rest = head.partition("\r\n")
    parts = line.split(" ")
    if len(parts) != 3:
        return None
    method, target, version = parts
    try:
        if method == "CONNECT":
            destination = parse_destination(target)
            return _ProxyRequest(destination, None) if destination.port else None
        scheme, _, after = target.partition("://")
        authority, slash, path = after.partition("/")
        if scheme.lower() != "http" or "@" in authority:
            return None
        destination = parse_destination(authority)
    except ValueError:
        return None
    kept = [
        header
        for header in rest.split("\r\n")
        if header and not header.lower().startswith(("proxy-", "connection:", "keep-alive:"))
    ]
    lines = [f"{method} /{path if slash else ''} {version}", *kept, "Connection: close", "", ""]
    return _ProxyRequest(
        destination._replace(port=destination.port or 80), "\r\n".join(lines).encode("latin-1")
    )


def _is_public(text: str) -> bool:
    """Return whether an address, and every address embedded in it, is public."""
    return all(
        address.is_global and not address.is_multicast and address not in _METADATA
        for address in _unwrap(ip_address(text.partition("%")[0]))
    )


def _unwrap(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    yield address
    if isinstance(address, IPv4Address):
        return
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
    yield from (found for found in inner if found is not None)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while chunk := await source.read(65536):
            sink.write(chunk)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
    except OSError:
        sink.close()


def _send_answer(writer: asyncio.StreamWriter, code: int, reason: str) -> None:
    body = f"assay: {reason}\n".encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {code} Refused\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)


def _open_listener(process: int) -> socket.socket:
    """Open a listening socket in the network namespace of a process, by a helper process."""
    ours, theirs = socket.socketpair()
    handles: list[int] = []
    try:
        network = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        handles.append(network)
        if os.geteuid() != 0:
            # The capability to enter it comes from the user namespace that owns it.
            handles.insert(0, fcntl.ioctl(network, _OWNER_OF_NAMESPACE))
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _HELPER]
            + [str(number) for number in (*handles, theirs.fileno(), _PORT)],
            pass_fds=(*handles, theirs.fileno()),
            capture_output=True,
            text=True,
            timeout=_CONNECT_S,
            check=False,
        )
        if done.returncode != 0:
            raise SandboxUnavailable(
                f"the proxy cannot enter the sandbox's network: {done.stderr.strip()[-200:]}; "
                "with --sandbox docker this needs root"
            )
        _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
        return socket.socket(fileno=listener)
    except OSError as error:
        raise SandboxUnavailable(
            f"the proxy cannot enter the sandbox's network: {error}"
        ) from error
    finally:
        ours.close()
        theirs.close()
        for handle in handles:
            os.close(handle)
