"""Each scenario shows what it promises: the page's own state against `/metrics`."""

import re
from typing import Any

import pytest

from tests.book.conftest import browser  # noqa: F401
from tests.server.conftest import LiveServer
from tests.web.chat_pages import tutor, visited  # noqa: F401

PREFIX = "vllm:"


def counter(server: LiveServer, name: str) -> float:
    lines = server.http.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{PREFIX}{name}{{"))


@pytest.fixture
def page(browser, tutor) -> Any:  # noqa: F811
    with visited(browser, tutor) as page:
        page.evaluate("document.querySelector('.c-next').open = false")
        page.wait_for_selector("[data-load=shared]:enabled")
        yield page


def played(page: Any, name: str) -> str:
    page.click(f"[data-load={name}]")
    page.wait_for_selector(".n-seen:not(:empty)", timeout=60_000)
    assert page.get_attribute(".n-seen", "data-failed") == "false"
    seen: str = page.inner_text(".n-seen")
    return seen


def story(page: Any) -> str:
    """The sentence of the step at which the picture stands after the load."""
    step = page.evaluate("xray.store.state.n")
    page.wait_for_selector(f".xray[data-step='{step}']")
    assert not page.evaluate("xray.store.following")
    assert f"The picture stands at step {step}" in page.inner_text(".n-seen")
    told: str = page.inner_text(".x-story")
    return told


def test_a_shared_prompt_is_found_in_the_tree(page, tutor) -> None:  # noqa: F811
    before = counter(tutor, "prefix_cache_hits_total")
    seen = played(page, "shared")
    hits = counter(tutor, "prefix_cache_hits_total") - before
    assert hits == 7 * 320  # all shared tokens, by seven requests
    assert f"{hits:,.0f} came from the tree" in seen
    cached = page.evaluate(
        "[...xray.store.head.requests.values()].reduce((sum, { cached }) => sum + cached, 0)"
    )
    assert cached == hits
    assert "found 2,240 tokens" in story(page).replace("2240", "2,240")
    assert page.inner_text(".x-panel-queues h3 >> nth=0") == "Running 8"
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("xray.store.state === xray.store.head")


@pytest.mark.nightly
def test_a_long_prompt_comes_in_chunks_beside_the_others(page, tutor) -> None:  # noqa: F811
    played(page, "long")
    assert re.search(r"computes \d+ prompt tokens from \d+ on; 6 requests decode", story(page))
    records = page.evaluate("xray.store.records")
    (long,) = page.evaluate(
        "[...xray.store.head.requests.values()].filter(r => r.prompt == 1024).map(r => r.id)"
    )
    steps = [
        it for it in records if any(row["id"] == long and row["is_prefill"] for row in it["rows"])
    ]
    assert sum(step["merged"] for step in steps) >= 4
    for step in steps:
        assert sum(row["num_tokens"] for row in step["rows"]) <= 256 * step["merged"]
        assert len({row["id"] for row in step["rows"]} - {long}) == 6


@pytest.mark.nightly
def test_a_pool_that_is_too_small_preempts(page, tutor) -> None:  # noqa: F811
    before = counter(tutor, "num_preemptions_total")
    seen = played(page, "blocks")
    preemptions = counter(tutor, "num_preemptions_total") - before
    assert preemptions > 1
    assert f"Seen: {preemptions:,.0f} preemptions among 6 requests" in seen
    page.wait_for_function("want => xray.store.head.preemptions == want", arg=preemptions)
    assert "No block is free" in story(page)
    assert page.evaluate("xray.store.state.preemptions") == 1


def test_a_scenario_can_be_stopped(page, tutor) -> None:  # noqa: F811
    page.click("[data-load=blocks]")
    page.wait_for_function("xray.store.head.running.length > 0")
    page.get_by_role("button", name="Stop: more requests than blocks").click()
    page.wait_for_selector(".n-seen:not(:empty)")
    assert "Stopped" in page.inner_text(".n-seen")
    page.wait_for_function("xray.store.head.running.length == 0")


@pytest.mark.nightly
def test_urgent_requests_overtake(page, tutor) -> None:  # noqa: F811
    assert "urgent ones had their first token" in played(page, "priorities")
    order = page.evaluate(
        """[...xray.store.head.requests.values()].map(({ priority, ttft }) => [priority, ttft])"""
    )
    waiting = page.evaluate("xray.store.state.numWaiting")
    assert waiting > 0
    assert story(page)
    computed = page.evaluate(
        """() => {
          const { record, requests } = xray.store.state;
          return record.rows.filter(({ id }) => requests.get(id).priority === 0).length;
        }"""
    )
    assert computed == 2
    urgent = [ttft for priority, ttft in order if priority == 0]
    others = sorted(ttft for priority, ttft in order if priority == 10)
    assert len(urgent) == 2
    assert max(urgent) < others[len(others) // 2]


@pytest.mark.nightly
def test_what_cannot_be_shown_says_why(page) -> None:
    page.evaluate(
        """() => {
          const { header } = xray.store;
          xray.store.reset({ ...header, num_blocks: 1 << 20, policy: 'fcfs', token_budget: 8192 });
        }"""
    )
    for name in ("long", "blocks", "priorities"):
        assert page.is_disabled(f"[data-load={name}]")
    why = page.inner_text(".n-why")
    assert "--num-blocks" in why
    assert "--policy priority" in why
    assert "--token-budget" in why
