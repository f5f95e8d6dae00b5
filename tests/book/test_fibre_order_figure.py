"""The figure `fibre-order` has all 24 orders; without the barrier half of them are lucky."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.nightly

BOOK = Path(__file__).parents[2] / "book"


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    for name in ("base", "stage", "fibre-order"):
        page.add_script_tag(path=str(BOOK / f"theme/figures/{name}.js"))
    yield page
    page.close()


def lucky(page: Any, barrier: str) -> list[bool]:
    found: list[bool] = page.evaluate(
        f"Array.from({{ length: 24 }}, (_, n) => fibreOrder.run(n, {barrier}).lucky)"
    )
    return found


def test_every_order_is_there_once(page: Any) -> None:
    orders = page.evaluate("Array.from({ length: 24 }, (_, n) => fibreOrder.order(n).join())")
    assert len(set(orders)) == 24
    assert {"".join(sorted(order.split(","))) for order in orders} == {"0123"}


def test_half_of_the_orders_hide_the_missing_barrier(page: Any) -> None:
    assert lucky(page, "false").count(True) == 12


def test_with_the_barrier_every_order_is_right(page: Any) -> None:
    assert lucky(page, "true").count(True) == 24
