"""Which hosts other machines cannot reach."""

import pytest

from yaie.engine.handover.address import TcpAddress
from yaie.system.addresses import is_any, is_loopback


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.10", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"],
)  # fmt: skip
def test_loopback_however_it_is_written_is_this_machine_alone(host: str) -> None:
    assert is_loopback(host)
    assert TcpAddress(host, 1).is_private


@pytest.mark.parametrize(
    "host",
    ["127.evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "127.1", "0.0.0.0", "::",
     "10.0.0.1", "128.0.0.1", "::2", ""],
)  # fmt: skip
def test_a_name_that_begins_like_one_is_not(host: str) -> None:
    assert not is_loopback(host)
    assert not TcpAddress(host, 1).is_private


def test_all_addresses_of_a_machine_have_several_names() -> None:
    assert all(is_any(host) for host in ("0.0.0.0", "::", "0::0", "::ffff:0.0.0.0"))
    assert not any(is_any(host) for host in ("127.0.0.1", "::1", "0.0.0.0.example", ""))
