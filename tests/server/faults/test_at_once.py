"""All hostile requests at once, on `yaie serve` as people run it: others are served, nothing is kept."""

import re
import signal
import sys
import time

import httpx
import psutil
import pytest

from tests.cli.test_serve import address_in, server
from tests.server.conftest import within
from tests.server.faults.at_once import alone, attack, work
from tests.server.faults.clients import PATH
from yaie.engine.background.engine_thread import CALM

BUSY = {"429", "503"}
"""What a server may answer that has enough to do: come again."""
ALLOWED = {
    "14 MB prompt": {"400"} | BUSY,
    "14 MB message": {"400"} | BUSY,
    "14 MB truncated": {"200"} | BUSY,
    "numbers": {"400"} | BUSY,
    "n=128 x 400 x 20": {"400"},
    "deep JSON": {"400"},
    "circular schema": {"400"},
    "wrong fields": {"400"},
    "100 MB announced": {"413"},
    "no HTTP": {"400"},
    "300 headers": {"400"},
    "long head": {"400"},
}


def memory(pid: int) -> int:
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return sum(member.memory_info().rss for member in family)


LONGEST_GAP = 0.3
"""Seconds between two chunks of the stream. A step with a prompt's chunk takes a sixth of it; one of two
threads takes more where the server's own threads for large bodies and texts have a core for a while."""
SLOWEST_HEALTH = 0.1
"""Seconds."""
ATTACKS, CALM_ATTACKS = 4, 3
"""Both are kept in so many attacks at least. The server and all its clients share the cores, and a step
that finds them busy takes a tenth of a second more."""


POOL_TOKENS = 32_768
"""Of the tutor's pool."""


def in_use(url: str) -> float:
    found = re.search(
        r"^vllm:num_requests_running\S* (\S+)", httpx.get(f"{url}/metrics").text, re.M
    )
    assert found is not None
    return float(found[1])


def write_pool(url: str) -> None:
    """Each block once. One that an attack writes first would seem to be memory that it leaves behind."""
    prompts = [[10 + (97 * number + token) % 3000 for token in range(1900)] for number in range(20)]
    answer = httpx.post(url + PATH, json={"prompt": prompts, "max_tokens": 1}, timeout=120)
    assert answer.status_code == 200
    assert answer.json()["usage"]["prompt_tokens"] > POOL_TOKENS


def memory_at_rest(url: str, pid: int) -> int:
    """Bytes, once nothing runs and garbage has been collected."""
    within(60, lambda: in_use(url) == 0)
    time.sleep(4 * CALM)
    return memory(pid)


@pytest.mark.nightly
@pytest.mark.quiet
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGTERM")
def test_a_stream_goes_on_beside_all_hostile_requests_at_once() -> None:
    """Texts and answers are right in each attack, waits are short in CALM_ATTACKS of them."""
    with server("--mine=none") as (process, lines):
        url = address_in(process, lines)
        expected = alone(url).text
        write_pool(url)
        attack(url)  # what is loaded late is loaded
        before = memory_at_rest(url, process.pid)
        waits: list[tuple[float, float]] = []
        for _ in range(ATTACKS):
            within(60, lambda: in_use(url) == 0)
            seen = attack(url)
            waits.append((max(seen.gaps), max(seen.health)))
            assert seen.text == expected
            answers = [answer.rsplit(": ", 1) for answer in seen.answers]
            assert [status for _, status in answers if status == "500"] == []
            wrong = [
                (kind, said) for kind, said in answers if said not in ALLOWED.get(kind, {said})
            ]
            assert wrong == []
        calm = [gap < LONGEST_GAP and health < SLOWEST_HEALTH for gap, health in waits]
        assert sum(calm) >= CALM_ATTACKS, waits
        assert memory_at_rest(url, process.pid) < 1.1 * before
        assert alone(url).text == expected
        process.send_signal(signal.SIGTERM)


WORK_HEALTH = 0.25
"""Seconds beside all the work that can be asked for: more, since most of it is begun."""


@pytest.mark.nightly
@pytest.mark.quiet
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGTERM")
def test_a_stream_goes_on_beside_the_worst_of_every_route_and_field_at_once() -> None:
    """The fault table for work, in each row its worst: as above. With one thread: what a step of two
    waits for beside other programs, of which the clients are one here, is the governor's to mend."""
    with server("--mine=none", "--threads=1") as (process, lines):
        url = address_in(process, lines)
        expected = alone(url).text
        attack(url, work)  # what is loaded late is loaded
        waits: list[tuple[float, float]] = []
        for _ in range(ATTACKS):
            within(120, lambda: in_use(url) == 0)
            seen = attack(url, work)
            waits.append((max(seen.gaps), max(seen.health)))
            assert seen.text == expected
            failed = [answer for answer in seen.answers if answer.endswith(": 500")]
            assert failed == []
        calm = [gap < LONGEST_GAP and health < WORK_HEALTH for gap, health in waits]
        assert sum(calm) >= CALM_ATTACKS, waits
        process.send_signal(signal.SIGTERM)
