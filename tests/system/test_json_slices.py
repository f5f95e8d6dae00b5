"""JSON in slices is the JSON of the whole."""

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaie.system import json_slices
from yaie.system.json_slices import Rows, Turns, free, written

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('aß"\\\u2028🙂')
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=40,
)


def text_of(value: Any) -> str:
    return b"".join(asyncio.run(written(lambda: value))).decode()


@given(value=VALUES)
def test_a_value_is_written_as_json_dumps_writes_it(value: Any) -> None:
    text = "".join(json_slices._slices(value, 0))
    assert text == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 5000])
def test_rows_are_the_list_that_they_make(size: int) -> None:
    made: list[int] = []

    def make(items: list[int]) -> list[dict[str, int]]:
        made.append(len(items))
        return [{"item": item} for item in items]

    rows = {"rows": Rows(list(range(size)), make), "numbers": list(range(size))}
    assert json.loads(text_of(rows)) == {
        "rows": [{"item": item} for item in range(size)],
        "numbers": list(range(size)),
    }
    assert sum(made) == size
    assert all(count <= json_slices.SLICE for count in made)


def test_what_is_no_json_is_not_written() -> None:
    for value in (float("nan"), {"a": [float("inf")]}):
        with pytest.raises(ValueError, match="JSON"):
            text_of(value)


def test_what_making_it_raises_is_raised() -> None:
    def make() -> Any:
        raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(written(make))


def test_a_writer_stops_when_its_caller_is_cancelled() -> None:
    made, has_begun = [0], threading.Event()

    def make(items: list[int]) -> list[int]:
        made[0] += len(items)
        has_begun.set()
        time.sleep(0.003)
        return items

    async def test() -> None:
        writing = asyncio.create_task(written(lambda: Rows(list(range(100_000)), make)))
        await asyncio.to_thread(has_begun.wait, 10)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await written(list)  # its turn comes once the other has stopped

    asyncio.run(test())
    assert made[0] < 100_000


def test_large_lists_are_emptied_and_small_ones_left_to_their_owner() -> None:
    large, small = [[object()] for _ in range(10_000)], [object()]
    free([large])
    free([small])
    asyncio.run(written(list))
    assert (large, len(small)) == ([], 1)


def test_long_work_rests_when_its_turn_is_over() -> None:
    turns = Turns()
    assert not turns.rest()
    time.sleep(2 * json_slices.TURN)
    assert turns.rest()
    assert not turns.rest()
