"""Which hosts are this machine alone."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether other machines cannot reach it: "localhost", or an IPv4 or IPv6 address of loopback.

    No other name is: anyone can register 127.evil.example, and point it to anywhere.
    """
    if host.lower() == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def is_any(host: str) -> bool:
    """Whether it stands for all of a machine's addresses: 0.0.0.0, :: however it is written."""
    address = _address(host)
    return address is not None and address.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address  # ::ffff:127.0.0.1
    return address
