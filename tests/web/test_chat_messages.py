"""Messages of the chat page: copied, edited, and with the speed at which they came."""

import json
import re
from typing import Any

import pytest

from tests.book.conftest import browser  # noqa: F401
from tests.web.chat_pages import (  # noqa: F401
    QUESTION,
    answered,
    ask,
    fake_answer,
    finished,
    tutor,
    visited,
)

ANSWER = (
    "Some *code*:\n\n```python\ndef f(x):\n    return x < 1\n```\n\n- and\n\n  ```\n  more\n  ```"
)
FOCUSED = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
CLIPBOARD = ["clipboard-read", "clipboard-write"]


def folded(page: Any) -> None:
    page.evaluate("document.querySelector('.c-next').open = false")


def test_an_answer_and_a_block_of_code_are_copied(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor, permissions=CLIPBOARD) as page:
        folded(page)
        fake_answer(page, ANSWER)
        ask(page)
        answer = finished(page)
        answer.get_by_role("button", name="Copy", exact=True).click()
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == ANSWER
        blocks = answer.get_by_role("button", name="Copy code")
        assert blocks.count() == 2
        blocks.first.press("Enter")
        page.wait_for_function(
            "async () => !(await navigator.clipboard.readText()).includes('Some')"
        )
        assert page.evaluate("navigator.clipboard.readText()") == "def f(x):\n    return x < 1"
        assert page.get_by_role("status").filter(has_text="Copied.").count() == 1
        assert page.evaluate("document.activeElement.tagName") == "BUTTON"


@pytest.mark.nightly
def test_without_a_clipboard_the_text_is_selected(browser, tutor) -> None:  # noqa: F811
    gone = (
        "Object.defineProperty(Navigator.prototype, 'clipboard', { get() { return undefined; } })"
    )
    with visited(browser, tutor, before=gone) as page:
        folded(page)
        fake_answer(page, ANSWER)
        ask(page)
        answer = finished(page)
        answer.get_by_role("button", name="Copy code").first.click()
        page.get_by_role("button", name="Selected").wait_for()
        assert page.evaluate("getSelection().toString()") == "def f(x):\n    return x < 1"
        answer.get_by_role("button", name="Copy", exact=True).click()
        page.wait_for_function("text => getSelection().toString() === text", arg=ANSWER)


def test_an_edited_message_is_asked_anew_and_what_was_behind_it_goes(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        folded(page)
        fake_answer(page, "One.")
        ask(page)
        answered(page, 1)
        ask(page, "And then?")
        answered(page, 2)
        page.get_by_role("button", name="Edit this message").first.press("Enter")
        assert page.evaluate(FOCUSED) == "The message, edited"
        assert "dropped" in page.inner_text(".c-editor")
        page.keyboard.press("Control+a")
        page.keyboard.type("What is <b>paging</b>?")
        with page.expect_request("**/v1/chat/completions") as sent:
            page.keyboard.press("Enter")
        messages = json.loads(sent.value.post_data)["messages"]
        assert messages == [{"role": "user", "content": "What is <b>paging</b>?"}]
        answered(page, 1)
        assert page.locator(".c-user .c-words").all_inner_texts() == ["What is <b>paging</b>?"]
        # The old answer is no branch of it.
        assert page.locator(".c-answer .c-branches").count() == 0
        assert page.evaluate(FOCUSED) == "Edit this message"


@pytest.mark.nightly
def test_an_edit_can_be_left_and_then_nothing_goes(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        folded(page)
        fake_answer(page, "One.")
        ask(page)
        answered(page, 1)
        for leave in ("Escape", "Enter"):  # Enter without a change sends nothing
            page.get_by_role("button", name="Edit this message").click()
            page.keyboard.press(leave)
            assert page.evaluate(FOCUSED) == "Edit this message"
        page.get_by_role("button", name="Edit this message").click()
        page.get_by_role("textbox", name="The message, edited").fill("  ")
        assert page.get_by_role("button", name="Send again").is_disabled()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Cancel").click()
        assert page.locator(".c-user .c-words").inner_text() == QUESTION
        assert page.locator(".c-answer").count() == 1


@pytest.mark.nightly
def test_an_edit_ends_the_answer_that_is_being_written(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        folded(page)
        page.evaluate(
            """() => {
              const own = window.fetch;
              window.ended = 0;
              window.fetch = (path, init) => {
                init?.signal?.addEventListener('abort', () => { window.ended += 1; });
                return own(path, String(path).endsWith('/completions')
                  ? { ...init, body: init.body.replace('{', '{"ignore_eos":true,') } : init);
              };
            }"""
        )
        page.locator("input[name=max_tokens]").evaluate("input => { input.value = 1024; }")
        page.locator("input[name=max_tokens]").dispatch_event("input")
        ask(page)
        page.wait_for_function("chat.ctx.conversation.tip.tokens?.length > 3")
        page.get_by_role("button", name="Edit this message").click()
        page.keyboard.press("Escape")  # leaves the edit, and does not stop the answer
        assert page.evaluate("window.ended") == 0
        page.get_by_role("button", name="Edit this message").click()
        page.keyboard.type(" Now?")
        page.keyboard.press("Enter")
        page.wait_for_function("window.ended === 1")
        assert page.locator(".c-answer").count() == 1
        page.locator(".c-answer").get_by_role("button", name="Stop").click()
        finished(page, "stopped")


def test_a_stopwatch_counts_the_tokens_behind_the_first_ones(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        slow, usage, burst, none, words = page.evaluate(
            """async () => {
              const { Stopwatch, inWords } = await import('/web/chat/speed.js');
              const of = (came, usage) => {
                const watch = new Stopwatch();
                for (const [count, at] of came) watch.came(count, at);
                if (usage) watch.counted(usage);
                return watch.speed();
              };
              const said = [[0.2, null], [94.4, 31.26], [1234, 812.3]];
              return [of([[3, 100], [0, 500], [1, 1100], [1, 2100]]).rate,
                of([[3, 100], [1, 1100]], 13).rate, of([[3, 100], [9, 101]]).rate, of([[0, 100]]),
                said.map(([first, rate]) => inWords({ first, rate }))];
            }"""
        )
    assert slow == 1  # two tokens in two seconds: the first three were not waited for one by one
    assert usage == 10  # the stream's own count
    assert burst is None
    assert none is None
    assert words == ["First token after 1 ms.", "First token after 94 ms, then 31 tokens/s received.",
                     "First token after 1.2 s, then 812 tokens/s received."]  # fmt: skip


def test_below_an_answer_stands_how_fast_it_came(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        folded(page)
        with page.expect_request("**/v1/chat/completions") as sent:
            ask(page)
        assert json.loads(sent.value.post_data)["stream_options"] == {"include_usage": True}
        footer = finished(page).locator("footer").inner_text()
        assert re.search(r"First token after [\d.]+ m?s, then [\d.,]+ tokens/s received\.", footer)


def test_the_models_name_stands_on_the_page(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        page.set_viewport_size({"width": 360, "height": 740})
        page.wait_for_function("document.querySelector('.c-model').textContent === 'tutor'")
        assert page.locator(".c-by").is_visible()
        assert page.inner_text("#model") == "tutor"


@pytest.mark.nightly
def test_the_focus_stays_with_what_was_done(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        folded(page)
        fake_answer(page, "One.")
        ask(page)
        answered(page, 1)
        page.get_by_role("button", name="Regenerate").press("Enter")
        page.wait_for_function("document.querySelector('#chat').innerText.includes('2/2')")
        answered(page, 1)
        assert page.evaluate(FOCUSED) == "Regenerate"
        page.get_by_role("button", name="The branch before").press("Enter")
        page.wait_for_function("document.querySelector('.c-log').innerText.includes('1/2')")
        assert page.evaluate(FOCUSED) == "The next branch"  # there is none before
        page.get_by_role("button", name="Tokens", exact=True).press("Enter")
        assert page.evaluate(FOCUSED) == "Tokens"
