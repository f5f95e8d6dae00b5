"""Takes the port before anything slow happens: a taken one is reported at once.

Imports neither torch nor the web framework, for the same reason.
"""

import errno
import os
import socket
from ipaddress import ip_address

from yaie.core.errors import ConfigError
from yaie.system.addresses import is_any

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Port 0 takes any free one. Raises ConfigError that says what to do."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, OverflowError, UnicodeError):
        raise ConfigError(
            f"cannot listen on host {host!r}: no such address on this machine. Use 127.0.0.1 for this "
            "machine alone, 0.0.0.0 for all its networks.",
            param="host",
        ) from None
    listener = socket.socket(family, kind, protocol)
    if os.name == "posix":  # on Windows it would let two servers share the port
        # A restart need not wait for the connections of the run before to time out.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(_advice(error, host, port), param="port") from None
    return listener


def url_of(listener: socket.socket, secure: bool = False) -> str:
    """Where a client on this machine reaches it. secure: by HTTPS."""
    scheme = "https" if secure else "http"
    host, port = listener.getsockname()[:2]
    if is_any(host):
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether what listens there can be reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return bool(host) and ip_address(found[0][4][0]).is_loopback
    except (OSError, ValueError):  # `listen` will say so
        return host == "localhost"


def name_in(host: str) -> str | None:
    """The name or address in a Host, in small letters and without a port; None if it is malformed."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        port = port[1:] if port.startswith(":") else "x" * len(port)
        is_right = bool(bracket) and is_address(name)
    else:
        name, _, port = host.partition(":")
        name = name.removesuffix(".")
        is_right = (
            bool(name)
            and name.isascii()
            and all(letter.isalnum() or letter in "-._" for letter in name)
        )
    return name.lower() if is_right and (not port or port.isdigit()) else None


def is_address(name: str) -> bool:
    """Whether it is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _advice(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {port} on {host} is in use. Stop what listens there, or choose another port "
                f"with --port (0 takes any free one)."
            )
        case errno.EACCES:
            return f"port {port} is not for this user to take; choose one above 1023 with --port."
        case errno.EADDRNOTAVAIL:
            return (
                f"{host} is not an address of this machine. Use --host 127.0.0.1 for this machine "
                "alone, 0.0.0.0 for all its networks."
            )
        case _:
            return f"cannot listen on {host} port {port}: {error.strerror}."
