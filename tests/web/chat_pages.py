"""The page of `yaie serve` in a browser, with the tutor behind it, and what a visitor does there."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.server.conftest import LiveServer, serving
from yaie.engine.llm_engine import LLMEngine

QUESTION = "What is a KV cache?"


def load() -> LLMEngine:
    """The tutor in a pool of 128 blocks, with steps of at most 256 tokens."""
    return LLMEngine(model="tutor", num_blocks=128, token_budget=256, policy="priority", threads=1)


@pytest.fixture(scope="module")
def tutor() -> Iterator[LiveServer]:
    with serving(load) as server:
        yield server


@contextmanager
def visited(
    browser: Any,
    server: LiveServer,
    refused: int | None = None,
    before: str | None = None,
    **context: Any,
) -> Iterator[Any]:
    """The page at `/`; nothing may go wrong on it, and it may ask no other host for anything.

    refused: the status of answers that the browser may complain of.
    before: a script that runs before the page's own.
    """
    options = {"viewport": {"width": 1280, "height": 900}, "bypass_csp": True, **context}
    fresh = browser.new_context(reduced_motion="reduce", **options)
    page = fresh.new_page()
    page.set_default_timeout(15_000)
    if before is not None:
        page.add_init_script(before)
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda it: wrong.append(it.url) if _is_foreign(it.url, server.url) else None)
    try:
        page.goto(server.url)
        page.wait_for_selector(".xray[data-connection=connected]")
        yield page
        assert not [said for said in wrong if f"status of {refused} " not in said]
    finally:
        fresh.close()


def _is_foreign(address: str, own: str) -> bool:
    return not address.startswith((own, "data:", "blob:"))


def ask(page: Any, text: str = QUESTION) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.keyboard.press("Enter")


def finished(page: Any, state: str = "done") -> Any:
    """The answer that is seen, once it has ended like this."""
    found = page.locator(f".c-answer[data-state={state}]").last
    found.wait_for()
    return found


def answered(page: Any, count: int) -> None:
    """Waits until as many answers of the conversation that is seen are done."""
    page.wait_for_function(
        "count => document.querySelectorAll('.c-answer[data-state=done]').length === count",
        arg=count,
    )


def slide(page: Any, name: str, value: float) -> None:
    page.locator(f"input[name={name}]").evaluate(
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", value
    )


def afters(page: Any, where: str = ".c-next") -> list[str]:
    numbers: list[str] = page.locator(f"{where} .c-numbers").all_inner_texts()
    return [text.split(" → ")[1] for text in numbers]


def refreshed(page: Any, act: Callable[[], None]) -> None:
    """Does something and waits until the distribution has followed."""
    counter = "Number(document.querySelector('.c-next').dataset.asked ?? 0)"
    before = page.evaluate(counter)
    act()
    page.wait_for_function(f"before => {counter} > before", arg=before)


def fake_answer(page: Any, text: str) -> None:
    """Has the API say `text`, as two tokens."""
    half = len(text) // 2
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"content": part}, "token_ids": [300 + index],
                      "finish_reason": None}], "prompt_token_ids": [1]}
        for index, part in enumerate((text[:half], text[half:]))
    ]  # fmt: skip
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(body=body, content_type="text/event-stream"),
    )
