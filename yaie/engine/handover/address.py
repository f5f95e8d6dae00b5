"""Where two servers meet: at a socket's path on one host, or at a host and a port."""

import contextlib
import os
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from yaie.core.errors import ConfigError
from yaie.engine.handover.wire import MemoryWire, StreamWire, Wire
from yaie.system.addresses import is_loopback

CONNECT_SECONDS = 3.0
LOST_SECONDS = 15
"""After which a host that has vanished without a word counts as gone."""
_TCP = re.compile(r"(?:\[(?P<six>[^\]/]+)\]|(?P<host>[^:/\[\]]+)):(?P<port>[0-9]+)")


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket of the file system, for this user alone."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def check(self) -> None:
        """Raise ConfigError for a path that no socket can have."""
        if not hasattr(socket, "AF_UNIX"):
            raise ConfigError(
                "handover: this system lacks Unix sockets: give HOST:PORT", param="handover"
            )
        if len(os.fsencode(self.path)) > 103:
            raise ConfigError(
                f"handover: {self.path} is too long for a socket, which has 103 bytes",
                param="handover",
            )

    def check_free(self) -> None:
        """Raise ConfigError unless a socket can be made there."""
        self.check()
        path = self.path
        if not path.parent.is_dir():
            raise ConfigError(f"handover: there is no folder {path.parent}", param="handover")
        if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
            raise ConfigError(
                f"handover: {path} is there and no socket: name another path", param="handover"
            )
        with contextlib.suppress(OSError):
            self.connect().close()
            raise ConfigError(
                f"handover: another prefill server listens at {path}: name another path, or stop "
                "that one",
                param="handover",
            )

    def listen(self) -> socket.socket:
        """A listening socket. Raises ConfigError."""
        self.check_free()
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()  # of a server that was killed
        listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            listener.bind(str(self.path))
            listener.listen()
        except OSError as error:
            listener.close()
            raise ConfigError(f"cannot listen at {self.path}: {error}", param="handover") from None
        finally:
            os.umask(mask)
        return listener

    def connect(self) -> Wire:
        """To the process that listens there. Raises OSError if there is none."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CONNECT_SECONDS)
        try:
            connection.connect(str(self.path))
        except BaseException:
            connection.close()
            raise
        return self.wire(connection)

    def wire(self, connection: socket.socket) -> Wire:
        """Over a connection, made or accepted."""
        return MemoryWire(connection)

    def remove(self) -> None:
        """What listening has left."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    @property
    def is_private(self) -> bool:
        """Whether other machines cannot reach it."""
        return True


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A port of one of a host's addresses. host: a name, an IPv4 or an IPv6 address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def check(self) -> None:
        """Every address can be asked for: a name may be known later."""

    def check_free(self) -> None:
        """Raise ConfigError unless the port can be listened at."""
        self.listen().close()

    def listen(self) -> socket.socket:
        """A listening socket, at this address alone. Raises ConfigError."""
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, protocol)
        except (OSError, UnicodeError):
            raise ConfigError(
                f"handover: {self.host!r} is no address of this machine", param="handover"
            ) from None
        try:
            if (
                os.name == "posix"
            ):  # after a restart, connections of the run before are no hindrance
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        except OSError as error:
            listener.close()
            raise ConfigError(
                f"handover: cannot listen at {self}: {error.strerror}. Name an address of this machine "
                "and a port that is free.",
                param="handover",
            ) from None
        return listener

    def connect(self) -> Wire:
        """To the server that listens there. Raises OSError if there is none."""
        try:
            return self.wire(socket.create_connection((self.host, self.port), CONNECT_SECONDS))
        except UnicodeError as error:  # of a name that is none
            raise OSError(str(error)) from None

    def wire(self, connection: socket.socket) -> Wire:
        """Over a connection, made or accepted. It ends when the other host has been silent for
        LOST_SECONDS although it was asked something; without that it would be waited for for ever."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", LOST_SECONDS // 3),
            ("TCP_KEEPINTVL", LOST_SECONDS // 3),
            ("TCP_KEEPCNT", 2),
            ("TCP_USER_TIMEOUT", LOST_SECONDS * 1000),
        ):
            if hasattr(socket, name):  # Linux has all of them
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return StreamWire(connection)

    def remove(self) -> None:
        """Nothing is left of a port."""

    @property
    def is_private(self) -> bool:
        return is_loopback(self.host)


Address = UnixAddress | TcpAddress


def address_of(text: str) -> Address:
    """`HOST:PORT`, or a path. Raises ConfigError for what is neither."""
    if found := _TCP.fullmatch(text):
        port = int(found["port"])
        if not 1 <= port <= 65535:
            raise ConfigError(
                f"handover: the port must be between 1 and 65535, got {port}", param="handover"
            )
        return TcpAddress(found["six"] or found["host"], port)
    if ":" in text and "/" not in text:
        raise ConfigError(
            f"handover: {text!r} is neither HOST:PORT nor [IPv6]:PORT; a path with a colon needs a / "
            "in it, such as ./a:b",
            param="handover",
        )
    return UnixAddress(Path(text))
