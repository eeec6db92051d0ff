"""The listening socket, taken before anything slow is begun, and the words for when it cannot be had."""

from __future__ import annotations

import errno
import ipaddress
import logging
import resource
import socket

log = logging.getLogger("weighbridge.gateway")

SEND_BUFFER_BYTES = 131_072
"""Kernel buffer of each connection (bytes, doubled by Linux). Left to grow by itself it would swallow megabytes
for a caller that has stopped reading, and the engine would go on for it."""

BACKLOG = 2048

OWN_FILES = 512
"""File descriptors the gateway needs beside its callers' connections: databases, engines, outward connections."""


class StartError(Exception):
    """The gateway cannot start. `str()` is one line."""


def bind(host: str, port: int) -> socket.socket:
    """Bind `host:port`; connections are refused until `listen`.

    Raises:
        StartError: the name is unknown, the port is taken or not ours to take.
    """
    where = authority(host, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise StartError(f"{where} cannot be listened on: the host name is unknown") from None
    # A name such as localhost may stand for both kinds of address; callers of it try IPv4 as well.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        sock.bind(address)
    except OSError as exc:
        sock.close()
        raise StartError(_why(where, exc)) from None
    sock.set_inheritable(False)
    return sock


def listen(sock: socket.socket) -> None:
    """Begin to take connections.

    Raises:
        StartError: somebody bound the same port at the same moment and was first.
    """
    try:
        sock.listen(BACKLOG)
    except OSError as exc:
        host, port = sock.getsockname()[:2]
        raise StartError(_why(authority(host, port), exc)) from None


def room_for(connections: int) -> int:
    """Have the system let this process open files for so many connections; how many there is room for."""
    wanted = connections + OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    room = max(1, allowed - OWN_FILES)
    if room < connections:
        log.warning(
            "server.max_connections is %d, but the system allows %d open files: %d connections are taken",
            connections,
            allowed,
            room,
        )
    return min(room, connections)


def authority(host: str, port: int) -> str:
    """`host:port` as a URL writes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable_url(host: str, port: int, tls: bool) -> str:
    """The URL to try from this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
    return f"{'https' if tls else 'http'}://{authority(host, port)}"


def _why(where: str, exc: OSError) -> str:
    if exc.errno == errno.EADDRINUSE:
        return f"{where} is already in use"
    if exc.errno in (errno.EACCES, errno.EPERM):
        return f"{where} cannot be listened on: this user may not take that port"
    if exc.errno == errno.EADDRNOTAVAIL:
        return f"{where} cannot be listened on: this machine does not have that address"
    return f"{where} cannot be listened on: {exc.strerror or 'the system refused'}"
