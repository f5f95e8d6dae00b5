"""The page's suggested questions are answered whatever pool there is."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.book.conftest import browser  # noqa: F401
from tests.server.conftest import LiveServer, serving
from tests.web.chat_pages import finished, visited
from yaie.engine.llm_engine import LLMEngine


def load() -> LLMEngine:
    """192 tokens in all, fewer than an answer may have."""
    return LLMEngine(model="tutor", num_blocks=12, threads=1)


@pytest.fixture(scope="module")
def small() -> Iterator[LiveServer]:
    with serving(load) as server:
        yield server


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_suggested_question_fits_a_small_pool(
    browser: Any,  # noqa: F811
    small: LiveServer,
    index: int,
) -> None:
    with visited(browser, small, refused=400) as page:
        page.locator(".c-starter").nth(index).click()
        assert len(finished(page).inner_text()) > 20
