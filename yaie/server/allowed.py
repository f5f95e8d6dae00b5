"""Which names a server goes by, and which web pages may ask it: what a Host and an Origin must be, which
a browser sets and no page can.

A browser runs pages of strangers on the machine that a server listens on. Two ways lead from such a page
past "it listens on 127.0.0.1 alone":

    DNS rebinding   the page's own name comes to mean 127.0.0.1. The browser takes the server for the
                    page's origin and lets the page read answers. Host then holds that name.
    a plain POST    a page may send one anywhere, without a body or headers that need a preflight. It
                    reads no answer, but what was asked for is done. Origin then holds the page's.
"""

from collections.abc import Collection

from yaie.core.ranges import shown
from yaie.server.listen import is_address, name_in

Heads = tuple[tuple[bytes, bytes], ...]
"""Names and values."""

ANY = "*"
MAX_NAME = 253
"""Characters of a host's name (RFC 1035)."""
DEFAULT_PORTS = {"http": "80", "https": "443"}


class Allowed:
    """A Host may be an IP address or localhost, which no DNS can point elsewhere, or a name in `hosts`.

    An Origin may be the server's own, that is the Host, or one in `origins`. A client that is no browser
    sends none. "null", which pages in files and in sandboxes send, is foreign.
    """

    def __init__(self, hosts: Collection[str] | None, origins: Collection[str]) -> None:
        """hosts: None if any will do."""
        self._hosts = None if hosts is None or ANY in hosts else {host.lower() for host in hosts}
        self._origins = {origin.lower() for origin in origins}

    def complaint(self, heads: Heads) -> str | None:
        """Why a request with these may not come in; None if it may."""
        hosts, origins = _values(heads, b"host"), _values(heads, b"origin")
        if self._hosts is not None and not all(map(self._is_ours, hosts)):
            host = next(host for host in hosts if not self._is_ours(host))
            return (
                f"The Host {shown(host)} is no name of this server: a web page may have been given it "
                "to get in (DNS rebinding). If the name is yours, start the server with --allowed-host "
                f"{(name_in(host) or 'NAME')[:MAX_NAME]}."
            )
        for origin in origins:
            if ANY not in self._origins and not self._may_ask(origin.lower(), hosts):
                return (
                    f"A web page of the origin {shown(origin)} may not ask this server. If it may, "
                    "start the server with --allowed-origins and that origin."
                )
        return None

    def _is_ours(self, host: str) -> bool:
        assert self._hosts is not None
        name = name_in(host)
        return name is not None and (
            is_address(name)
            or name == "localhost"
            or name.endswith(".localhost")  # RFC 6761: always this machine
            or name in self._hosts
            or host.lower() in self._hosts
        )

    def _may_ask(self, origin: str, hosts: list[str]) -> bool:
        """Whether a page of this origin is the server's own, or allowed. The scheme is not compared: a
        proxy may have taken TLS away."""
        if origin in self._origins:
            return True
        scheme, separator, authority = origin.partition("://")
        if not separator or len(hosts) != 1:
            return False
        usual = f":{DEFAULT_PORTS.get(scheme, '')}"
        return authority.removesuffix(usual) == hosts[0].lower().removesuffix(usual)


def _values(heads: Heads, wanted: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for name, value in heads if name == wanted]
