"""The kit's generated examples follow the session, although Hypothesis fixes them on import."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples
from grader.kit.session import SESSION


@pytest.fixture(autouse=True)
def _session(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("seed", "shrink", "effort"):
        monkeypatch.setattr(SESSION, name, getattr(SESSION, name))


def drawn() -> list[int]:
    seen: list[int] = []

    @examples(50)
    @given(st.integers(0, 10**9))
    def collect(number: int) -> None:
        seen.append(number)

    collect()
    first = list(seen)
    seen.clear()
    collect()
    assert seen == first, "the same seed draws the same examples"
    return first


def test_effort_changes_the_number_of_examples() -> None:
    SESSION.effort = 1.0
    assert len(drawn()) == 50
    SESSION.effort = 0.3
    assert len(drawn()) == 15


def test_the_seed_of_the_session_decides_what_is_drawn() -> None:
    SESSION.seed = 1
    first = drawn()
    SESSION.seed = 2
    assert drawn() != first
