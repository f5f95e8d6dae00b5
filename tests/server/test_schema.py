"""What the OpenAPI document promises is kept: whatever is made from it is answered as it says.

No 5xx, no status, content type or body that it does not name, and wrong bodies are refused.
"""

from collections.abc import Iterator

import pytest

from tests.server.conftest import LiveServer
from tests.server.schema_run import Outcome, run, small_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small() -> Iterator[LiveServer]:
    with small_server() as server:
        yield server


def check(outcome: Outcome, at_least: int) -> None:
    assert outcome.failures == {}
    assert outcome.cases >= at_least
    answered = {status for _, status in outcome.statuses}
    assert {200, 400} <= answered, "right ones and wrong ones were among them"
    # Whether a status is one that the document names for its route, each case checked.
    assert max(answered) < 500


def test_examples_and_random_requests_are_answered_as_documented(small: LiveServer) -> None:
    check(run(small.url, 6, coverage=False), at_least=60)


@pytest.mark.nightly
def test_corner_cases_are_answered_as_documented(small: LiveServer) -> None:
    paths = r"^/(v1/completions|detokenize|v1/models|health|ready|metrics|model_info|version)"
    check(run(small.url, 0, paths=paths), at_least=150)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_thousands_of_requests_are_answered_as_documented(small: LiveServer) -> None:
    check(run(small.url, 600), at_least=5000)
