"""The port is taken, or the message says why not; and what a client on this machine calls it."""

import errno
import socket
from typing import Any

import pytest

from yaie.core.errors import ConfigError
from yaie.server.listen import listen, url_of


class Bound:
    """A listener, as far as its address goes."""

    def __init__(self, host: str) -> None:
        self._host = host

    def getsockname(self) -> tuple[str, int, int, int]:
        return self._host, 8000, 0, 0


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("10.0.0.7", "http://10.0.0.7:8000"),
    ],
)
def test_a_url_can_be_opened_on_this_machine(host: str, url: str) -> None:
    bound: Any = Bound(host)
    assert url_of(bound) == url
    assert url_of(bound, secure=True) == url.replace("http", "https")


def test_a_host_that_is_none_is_said() -> None:
    with pytest.raises(ConfigError, match=r"no such address.*127\.0\.0\.1") as refused:
        listen("no.such.host.invalid", 0)
    assert refused.value.param == "host"


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EADDRINUSE, "port 8000 on 127.0.0.1 is in use"),
        (errno.EACCES, "choose one above 1023"),
        (errno.EADDRNOTAVAIL, "is not an address of this machine"),
        (errno.ENOBUFS, "cannot listen on 127.0.0.1 port 8000: full"),
    ],
)
def test_each_reason_not_to_listen_has_its_advice(
    monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def refuse(self: socket.socket, address: Any) -> None:
        raise OSError(number, "full")

    class Refusing(socket.socket):
        bind = refuse

    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(ConfigError, match=advice) as refused:
        listen("127.0.0.1", 8000)
    assert refused.value.param == "port"


def test_a_restart_need_not_wait_for_old_connections_where_that_is_safe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On Windows the same option would let two servers share the port."""
    for system, is_set in (("posix", True), ("nt", False)):
        monkeypatch.setattr("os.name", system)
        with listen("127.0.0.1", 0) as listener:
            assert bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)) == is_set
