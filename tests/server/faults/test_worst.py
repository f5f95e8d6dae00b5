"""No body keeps the event loop from others, whatever it is made of: each route has its worst ones."""

import contextlib
import gc
import json
from collections.abc import Iterator

import pytest

from tests.server.faults.clients import connect, head, status_of
from tests.server.faults.conftest import Patient
from tests.server.faults.gaps import Gaps
from tests.server.faults.worst_bodies import DETOKENIZE, PATHS, worst
from yaie.server.held_bodies import LARGE, SMALL
from yaie.server.settings import ServerSettings
from yaie.system.gc_tuning import freeze_heap

TRIES = 3
"""Another process that takes the core for a moment is no fault of the server's."""


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> Iterator[None]:
    """As `yaie serve` runs."""
    before = gc.get_threshold()
    freeze_heap()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def send(server: Patient, path: str, body: bytes) -> int:
    """The status of the answer; 0 if the server hung up, because it had read enough."""
    with connect(server.url) as connection, contextlib.suppress(OSError):
        connection.sendall(head(len(body), path) + body)
        return status_of(connection)
    return 0


@pytest.mark.nightly
@pytest.mark.quiet
@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("size", "most"),
    [(SMALL, 0.02), (LARGE, 0.02), (ServerSettings().max_body_bytes, 0.1)],
    ids=["16 KiB", "256 KiB", "16 MiB"],
)
def test_the_worst_body_of_each_route_holds_the_event_loop_for_a_moment(
    roomy: Patient, size: int, most: float
) -> None:
    send(roomy, DETOKENIZE, json.dumps({"tokens": [7] * SMALL}).encode())  # what is late is loaded
    late: list[str] = []
    for name, path, body in worst(size):
        longest = 9.0
        for _ in range(TRIES):
            if longest > most:
                with Gaps(roomy) as gaps:
                    status = send(roomy, path, body)
                assert status < 500 or status == 503, (name, path, status)
                longest = min(longest, gaps.longest)
        if longest > most:
            late.append(f"{path}, {name}: {longest * 1e3:.0f} ms")
    assert late == []


def test_the_worst_bodies_are_json_as_large_as_they_may_be() -> None:
    seen = set()
    for name, path, body in worst(SMALL):
        seen.add((name, path))
        assert 0.8 * SMALL < len(body) <= SMALL, (name, path)
        if name not in ("no JSON", "UTF-16"):
            json.loads(body)
    assert {path for _, path in seen} == set(PATHS)
