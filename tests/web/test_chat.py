"""The page of `yaie serve`, used as a visitor would: chat, branches, the next token's distribution."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.book.conftest import browser  # noqa: F401
from tests.marks import nightly_but
from tests.server.conftest import serving
from tests.web.chat_pages import (  # noqa: F401
    QUESTION,
    afters,
    ask,
    fake_answer,
    finished,
    load,
    refreshed,
    slide,
    tutor,
    visited,
)
from yaie.engine.llm_engine import LLMEngine

SIZES = [(360, 740), (768, 1024), (1280, 800), (1920, 1080)]
HOSTILE = """<script>window.hacked = 1</script>
<img src=x onerror="window.hacked = 2">

[press](javascript:window.hacked=3) [data](data:text/html,<script>window.hacked=4</script>) <javascript:>
![picture](https://elsewhere.example/p.png) [good](https://example.org/a_(b)) `<b onclick=x>`

| <i>a</i> | b |
|---|---|
| <svg onload=window.hacked=5> | **bold** |

```html
<iframe srcdoc="<script>parent.hacked=6</script>"></iframe>
```
> - <details open ontoggle=window.hacked=7>
"""


def test_an_answer_is_the_apis_and_can_be_asked_for_again(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        slide(page, "temperature", 0)
        page.locator(".c-system summary").click()
        page.get_by_role("textbox", name="System prompt").fill("You are a helpful tutor.")
        ask(page)
        answer = finished(page)
        messages = [{"role": "system", "content": "You are a helpful tutor."},
                    {"role": "user", "content": QUESTION}]  # fmt: skip
        told = tutor.http.post(
            "/v1/chat/completions",
            json={"messages": messages, "temperature": 0, "max_tokens": 256},
        ).json()["choices"][0]["message"]["content"]
        assert answer.locator(".c-words").inner_text() == told.strip()
        ask(page, "And why?")
        page.wait_for_function(
            "document.querySelectorAll('.c-answer[data-state=done]').length == 2"
        )
        page.get_by_role("button", name="Regenerate").last.click()
        page.wait_for_function("document.querySelector('#chat').innerText.includes('2/2')")
        page.wait_for_function(  # the second one again: the first has been done for long
            "document.querySelectorAll('.c-answer[data-state=done]').length == 2"
        )
        page.get_by_role("button", name="The branch before").click()
        page.wait_for_function("document.querySelector('.c-log').innerText.includes('1/2')")


@pytest.mark.nightly
def test_sliders_change_the_distribution(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        box = page.get_by_role("textbox", name="Message")
        refreshed(page, lambda: box.fill(QUESTION))
        refreshed(page, lambda: slide(page, "top_p", 1))
        refreshed(page, lambda: slide(page, "temperature", 2))
        warm = afters(page)
        assert len(warm) == 20
        assert "0" not in warm
        assert "4,096 of 4,096" in page.inner_text(".c-kept")
        refreshed(page, lambda: slide(page, "top_k", 3))
        assert afters(page)[3:] == ["0"] * 17
        assert page.inner_text(".c-kept").endswith("3 of 4,096 tokens may be drawn.")
        refreshed(page, lambda: slide(page, "temperature", 0))
        assert afters(page) == ["100%"] + ["0"] * 19


@pytest.mark.nightly
def test_a_token_can_be_another_and_the_old_branch_stays(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        slide(page, "temperature", 0)
        ask(page)
        old = finished(page).locator(".c-words").inner_text()
        page.get_by_role("button", name="Tokens", exact=True).click()
        tokens = page.locator(".c-token")
        assert tokens.last.inner_text() == "end"
        # From here on with the keyboard alone.
        tokens.first.focus()
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Enter"):
            page.keyboard.press(key)
        page.locator(".c-alternatives .c-candidate").first.wait_for()
        drawn = page.locator(".c-alternatives [data-drawn=true]")
        assert drawn.count() == 1
        assert afters(page, ".c-alternatives")[0] == "100%"
        page.wait_for_function("document.activeElement.classList.contains('c-candidate')")
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.className") == "c-token"
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.classList.contains('c-candidate')")
        page.keyboard.press("Tab")
        chosen = page.evaluate("Number(document.activeElement.dataset.id)")
        page.keyboard.press("Enter")
        page.wait_for_function("document.querySelector('#chat').innerText.includes('2/2')")
        finished(page)
        seen = page.evaluate("chat.ctx.conversation.tip")["tokens"]
        assert seen[3]["id"] == chosen
        assert len(seen) > 4
        page.get_by_role("button", name="Tokens", exact=True).click()
        new = page.locator(".c-answer .c-words").inner_text()
        page.get_by_role("button", name="The branch before").click()
        assert page.locator(".c-answer .c-words").inner_text() == old != new


def test_conversations_are_answered_at_once_and_can_be_stopped(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        page.evaluate(
            """() => {
              const own = window.fetch; // the tutor's answers are short
              window.fetch = (path, init) => own(path, String(path).endsWith('/completions')
                ? { ...init, body: init.body.replace('{', '{"ignore_eos":true,') } : init);
            }"""
        )
        slide(page, "max_tokens", 1024)
        ask(page)
        page.get_by_role("button", name="+ New").click()
        ask(page, "Why is decode slow?")
        page.wait_for_function("document.querySelectorAll('.c-busy').length == 2")
        page.wait_for_function("chat.conversations.every(({ tip }) => tip.tokens.length > 3)")
        page.keyboard.press("Escape")
        assert "Stopped after" in finished(page, "stopped").inner_text()
        page.get_by_role("button", name=QUESTION).first.click()
        page.get_by_role("button", name="Stop").first.click()
        finished(page, "stopped")
        page.wait_for_function("document.querySelectorAll('.c-busy').length == 0")


POEM = "The pool is wide,\nthe blocks are small;\n  a table leads\n  the way to all."


def test_lines_of_a_poem_and_of_code_stay_lines(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        page.evaluate("document.querySelector('.c-next').open = false")
        fake_answer(page, f"{POEM}\n\ndef f(x):\n    return x\n\n- one\n  more")
        ask(page)
        words = finished(page).locator(".c-words")
        assert words.locator("p").all_inner_texts() == [POEM, "def f(x):\n    return x"]
        assert words.locator("li").inner_text() == "one\nmore"
        heights = words.locator("p").evaluate_all(
            "all => all.map(p => p.clientHeight / parseFloat(getComputedStyle(p).lineHeight))"
        )
        assert [round(lines) for lines in heights] == [4, 2]


def test_a_conversation_that_fills_the_context_says_so_and_what_to_do(browser) -> None:  # noqa: F811
    with (
        serving(lambda: LLMEngine(model="tutor", max_model_len=64, threads=1)) as server,
        visited(browser, server, refused=400) as page,
    ):
        page.evaluate("document.querySelector('.c-next').open = false")
        page.evaluate(
            """() => {
              const own = window.fetch; // the tutor's answers are short
              window.fetch = (path, init) => own(path, String(path).endsWith('/completions')
                ? { ...init, body: init.body.replace('{', '{"ignore_eos":true,') } : init);
            }"""
        )
        slide(page, "max_tokens", 4)
        ask(page)
        assert "4 tokens; cut off by Max tokens" in finished(page).inner_text()
        slide(page, "max_tokens", 256)
        ask(page, "Why?")
        page.wait_for_function(
            "document.querySelectorAll('.c-answer[data-state=done]').length == 2"
        )
        told = page.locator(".c-answer").last.inner_text()
        assert "cut off, because the conversation fills the context" in told
        ask(page, "And then?")
        told = finished(page, "failed").inner_text()
        assert "The conversation fills the context of 64 tokens." in told
        assert "+ New" in told
        assert "--max-model-len" in told
        page.get_by_role("button", name="+ New").click()
        slide(page, "max_tokens", 4)
        ask(page)
        assert "4 tokens" in finished(page).inner_text()


def test_what_the_model_says_is_never_run(browser, tutor) -> None:  # noqa: F811
    # Under a policy that would let it: the rendering alone must hold.
    with visited(browser, tutor) as page:
        page.evaluate("document.querySelector('.c-next').open = false")
        fake_answer(page, HOSTILE)
        ask(page, "<img src=x onerror=window.hacked=8>")
        words = finished(page).locator(".c-words")
        assert words.locator("script, img, iframe, svg, details, [onclick], [onerror]").count() == 0
        links = words.locator("a").evaluate_all("all => all.map(a => [a.href, a.rel])")
        assert [address for address, _ in links] == [
            "https://elsewhere.example/p.png",
            "https://example.org/a_(b)",
        ]
        assert all("noopener" in rel for _, rel in links)
        text = words.inner_text()
        for part in ("<script>window.hacked = 1</script>", "onerror=", "(javascript:window.hacked=3)",
                     "<svg onload", "<iframe srcdoc", "<details open"):  # fmt: skip
            assert part in text
        assert words.locator("table td strong").inner_text() == "bold"
        page.get_by_role("button", name="Tokens", exact=True).click()
        assert page.locator(".c-log script, .c-log img").count() == 0
        page.wait_for_timeout(50)
        assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# One\n\ntwo *3* __4__ a_b_c", "<h3>One</h3><p>two <em>3</em> <strong>4</strong> a_b_c</p>"),
        ("- a\n- b\n  1. c\n  2. d", "<ul><li>a</li><li>b<ol><li>c</li><li>d</li></ol></li></ul>"),
        ("3. x\n\ny", '<ol start="3"><li>x</li></ol><p>y</p>'),
        ("`a < b` and 2 * 3 * 4", "<p><code>a &lt; b</code> and 2 * 3 * 4</p>"),
        ("> q\n\n---", "<blockquote><p>q</p></blockquote><hr>"),
        ("~~no~~ **bo", "<p><del>no</del> **bo</p>"),
        ("a *b*  \n\tc\\\nd \n\ne\\", "<p>a <em>b</em>\n\tc\nd</p><p>e\\</p>"),
        ("def f(x):\n    return x\n\n    # two", "<p>def f(x):\n    return x</p><p>    # two</p>"),
        ("- a\n  b\n\n  c", "<ul><li>a\nb<p>c</p></li></ul>"),
    ],
)  # fmt: skip
def test_markdown(browser, tutor, markdown_page, source: str, expected: str) -> None:  # noqa: F811
    made = markdown_page.evaluate(
        """async (source) => {
          const { markdown } = await import('/web/chat/markdown.js');
          const box = document.createElement('div');
          box.append(...markdown(source));
          return box.innerHTML;
        }""",
        source,
    )
    assert made == expected


@pytest.fixture(scope="module")
def markdown_page(browser, tutor) -> Iterator[Any]:  # noqa: F811
    with visited(browser, tutor) as page:
        yield page


@pytest.mark.nightly
def test_a_request_can_be_copied_and_run(browser, tutor) -> None:  # noqa: F811
    permissions = ["clipboard-read", "clipboard-write"]
    with visited(browser, tutor, permissions=permissions) as page:
        ask(page, 'It\'s "what"?')
        finished(page)
        page.get_by_role("button", name="curl").click()
        page.get_by_role("button", name="Copied").wait_for()
        curl = page.evaluate("navigator.clipboard.readText()")
        assert f"curl {tutor.url}/v1/chat/completions" in curl
        body = re.search(r"-d '(.*)'$", curl, re.DOTALL)
        assert body is not None
        told = json.loads(body[1].replace("'\\''", "'"))
        assert told["messages"] == [{"role": "user", "content": 'It\'s "what"?'}]
        page.get_by_role("button", name="Python").click()
        page.wait_for_function(
            "async () => (await navigator.clipboard.readText()).startsWith('from openai')"
        )
        compile(page.evaluate("navigator.clipboard.readText()"), "copied", "exec")


def test_what_went_wrong_is_said_in_words(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        page.evaluate("document.querySelector('.c-next').open = false")
        answer = {"error": {"message": "The engine is full; try again later."}}
        body = f"data: {json.dumps(answer)}\n\n"
        page.route(
            "**/v1/chat/completions",
            lambda route: route.fulfill(body=body, content_type="text/event-stream"),
        )
        ask(page)
        assert "The engine is full" in finished(page, "failed").inner_text()


@pytest.mark.nightly
def test_the_key_is_asked_for_once_and_kept_in_the_tab(browser) -> None:  # noqa: F811
    with serving(load, api_key=("secret",), xray=True) as server:
        fresh = browser.new_context(bypass_csp=True)
        page = fresh.new_page()
        page.set_default_timeout(15_000)
        page.goto(server.url)
        for key, told in (("wrong", "does not know this key"), ("secret", "")):
            page.wait_for_selector("#key[open]")
            page.fill("#key input", key)
            page.keyboard.press("Enter")
            page.wait_for_function("told => document.querySelector('#key').innerText.includes(told)"
                                   " || !told", arg=told)  # fmt: skip
        page.wait_for_function("!document.querySelector('#key').open")
        ask(page)
        finished(page)
        page.reload()
        ask(page)
        page.wait_for_function(
            "document.querySelectorAll('.c-answer[data-state=done]').length == 2"
        )
        page.wait_for_selector(".xray[data-connection=connected]")
        assert "secret" not in str(fresh.storage_state())  # what outlives the tab
        fresh.close()


@pytest.mark.parametrize("colours", nightly_but(["light"], ["light", "dark"]))
def test_everybody_can_use_it_on_every_screen(browser, tutor, colours: str) -> None:  # noqa: F811
    with visited(browser, tutor, color_scheme=colours) as page:
        slide(page, "temperature", 0)
        refreshed(page, lambda: ask(page))
        finished(page)
        page.get_by_role("button", name="Tokens", exact=True).click()
        page.locator(".c-token").nth(2).click()
        page.locator(".c-alternatives .c-candidate").first.wait_for()
        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_timeout(60)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            if width in (360, 1280):
                violations = Axe().run(page).response["violations"]
                assert not violations, [(it["id"], it["nodes"][0]["html"]) for it in violations]
        page.set_viewport_size({"width": 360, "height": 740})
        page.get_by_role("button", name="X-ray", exact=True).click()
        assert page.locator(".xray").is_visible()
        assert not page.locator(".chat").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
