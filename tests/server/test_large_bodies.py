"""Large bodies are read in turns, so that those who generate get the cores in between."""

import time

import pytest

from tests.server.conftest import serving
from tests.server.fake_engine import FakeEngine
from tests.server.test_bad_input import JSON
from tests.server.test_limits import head, raw, status_and_error, still_well
from yaie.server import held_bodies
from yaie.server.held_bodies import LARGE

PADDED = b'{"prompt": "abc"}' + b" " * 3 * LARGE
MEGABYTE = 1 << 20


def test_a_large_body_that_stops_halfway_is_a_408(fake: FakeEngine) -> None:
    with serving(lambda: fake, receive_timeout=0.4) as server:
        status, _ = status_and_error(raw(server, head(4 * LARGE) + b" " * 2 * LARGE))
        assert status == 408
        still_well(server)


def test_what_a_large_body_waits_for_its_turns_is_not_its_clients_time(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_bodies, "LARGE_BYTES_A_SECOND", MEGABYTE)
    with serving(lambda: fake, receive_timeout=0.5) as server:
        begin = time.monotonic()
        answer = server.http.post("/v1/completions", content=PADDED, headers=JSON)
        assert answer.json()["choices"][0]["text"] == "cba"
        assert time.monotonic() - begin > 0.5  # no sleep ends early


def test_small_bodies_wait_for_no_turn(fake: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_bodies, "LARGE_BYTES_A_SECOND", 1e-9)
    with serving(lambda: fake) as server:
        still_well(server)
        content = b'{"prompt": "abc"}'.ljust(LARGE)
        answer = server.http.post("/v1/completions", content=content, headers=JSON)
        assert answer.status_code == 200
