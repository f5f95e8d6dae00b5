"""Conversations that outlive the chat page: in the browser's storage, within its room, and by choice."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.book.conftest import browser  # noqa: F401
from tests.web.chat_pages import (  # noqa: F401
    QUESTION,
    answered,
    ask,
    fake_answer,
    finished,
    refreshed,
    slide,
    tutor,
    visited,
)

NAMES = "Object.keys(localStorage).filter(name => name.startsWith('yaie-chat')).sort()"
FOCUSED = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
FORBIDDEN = """for (const kind of ['localStorage', 'sessionStorage']) {
  Object.defineProperty(window, kind, { get() { throw new DOMException('no', 'SecurityError'); } });
}"""
FULL = """Storage.prototype.setItem = function (name) {
  if (name.startsWith('yaie-chat:')) throw new DOMException('no', 'QuotaExceededError');
};"""
SWITCH = "Keep conversations in this browser"
NO_ROOM = "No room left: what is new is not kept."


def folded(page: Any) -> None:
    """Without the next token's distribution, which asks the engine too."""
    page.evaluate("document.querySelector('.c-next').open = false")


def kept(page: Any) -> None:
    """Waits until all is written."""
    page.evaluate("chat.keeper.write()")


def again(page: Any) -> None:
    page.reload()
    page.wait_for_selector(".xray[data-connection=connected]")
    folded(page)


@pytest.fixture
def chatted(browser, tutor) -> Iterator[Any]:  # noqa: F811
    """A page with two conversations, the newer one seen."""
    with visited(browser, tutor) as page:
        folded(page)
        fake_answer(page, "One *word*.")
        ask(page)
        finished(page)
        page.get_by_role("button", name="+ New").click()
        fake_answer(page, "Another.")
        ask(page, "Why?")
        finished(page)
        yield page


def test_conversations_survive_a_reload_and_go_on(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        folded(page)
        slide(page, "temperature", 0)
        page.locator(".c-system summary").click()
        page.get_by_role("textbox", name="System prompt").fill("Be brief.")
        ask(page)
        before = finished(page).inner_text()
        page.get_by_role("button", name="+ New").click()
        page.get_by_role("textbox", name="Message").fill("a draft")
        page.locator(".c-tab", has_text=QUESTION).click()
        again(page)
        slide(page, "temperature", 0)
        assert finished(page).inner_text() == before
        assert page.locator(".c-tab").all_inner_texts() == ["Conversation 2", QUESTION]
        # A token's alternatives too: the server says the prompt's tokens again.
        page.get_by_role("button", name="Tokens", exact=True).click()
        page.locator(".c-token").nth(2).click()
        page.locator(".c-alternatives .c-candidate").nth(1).click()
        page.wait_for_function("document.querySelector('#chat').innerText.includes('2/2')")
        answered(page, 1)
        ask(page, "And why?")
        answered(page, 2)
        with page.expect_request("**/v1/chat/completions") as sent:
            page.get_by_role("button", name="Regenerate").last.click()
        roles = [each["role"] for each in json.loads(sent.value.post_data)["messages"]]
        assert roles == ["system", "user", "assistant", "user"]
        page.get_by_role("button", name="Conversation 2").click()
        assert page.get_by_role("textbox", name="Message").input_value() == "a draft"


@pytest.mark.nightly
def test_an_answer_that_a_reload_breaks_off_is_kept_as_far_as_it_came(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        folded(page)
        page.evaluate(
            """() => {
              const own = window.fetch;
              window.fetch = (path, init) => own(path, String(path).endsWith('/completions')
                ? { ...init, body: init.body.replace('{', '{"ignore_eos":true,') } : init);
            }"""
        )
        slide(page, "max_tokens", 1024)
        ask(page)
        page.wait_for_function("chat.ctx.conversation.tip.tokens?.length > 3")
        again(page)
        assert "Stopped after" in finished(page, "stopped").inner_text()


def test_the_switch_deletes_what_was_kept(chatted) -> None:
    page = chatted
    kept(page)
    assert len(page.evaluate(NAMES)) == 3
    page.get_by_role("switch", name=SWITCH).uncheck()
    assert page.evaluate(NAMES) == ["yaie-chats"]
    assert "Conversations end with this page." in page.inner_text(".c-foot")
    ask(page, "More?")
    answered(page, 2)
    kept(page)
    assert page.evaluate(NAMES) == ["yaie-chats"]
    again(page)
    assert page.locator(".c-message").count() == 0
    box = page.get_by_role("switch", name=SWITCH)
    assert not box.is_checked()
    # On again, it keeps what there is.
    ask(page)
    finished(page)
    box.check()
    again(page)
    assert finished(page).is_visible()


@pytest.mark.nightly
def test_the_switch_holds_for_other_tabs(chatted) -> None:
    other = chatted.context.new_page()
    other.goto(chatted.url)
    other.get_by_role("switch", name=SWITCH).uncheck()
    chatted.wait_for_function("!document.querySelector('.c-keep input').checked")
    ask(chatted, "More?")
    answered(chatted, 2)
    kept(chatted)
    assert chatted.evaluate(NAMES) == ["yaie-chats"]


def test_the_page_works_where_storage_is_forbidden(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor, before=FORBIDDEN) as page:
        folded(page)
        fake_answer(page, "Here.")
        ask(page)
        finished(page)
        box = page.get_by_role("switch", name=SWITCH)
        assert box.is_disabled()
        assert not box.is_checked()
        assert "does not let the page keep anything" in page.inner_text(".c-foot")
        page.get_by_role("button", name="Other colours").click()
        again(page)
        assert page.locator(".c-message").count() == 0


@pytest.mark.nightly
def test_a_browser_without_room_is_said_and_nothing_is_thrown_away(browser, tutor) -> None:  # noqa: F811
    with visited(browser, tutor, before=FULL) as page:
        folded(page)
        fake_answer(page, "Here.")
        ask(page)
        finished(page)
        kept(page)
        assert NO_ROOM in page.get_by_role("status").filter(has_text="room").inner_text()
        assert page.locator(".c-message").count() == 2


def test_a_conversation_beyond_the_room_is_kept_once_another_is_deleted(chatted) -> None:
    page = chatted
    room = page.evaluate("async () => (await import('/web/chat/keeper.js')).ROOM")
    page.evaluate("chat.conversations[0].draft = 'x'.repeat(1_100_000)")
    page.evaluate("chat.keeper.change(chat.conversations[0])")
    kept(page)
    assert NO_ROOM not in page.inner_text(".c-foot")
    page.evaluate("chat.conversations[1].draft = 'y'.repeat(1_000_000)")
    page.evaluate("chat.keeper.change(chat.conversations[1])")
    kept(page)
    assert NO_ROOM in page.inner_text(".c-foot")
    sizes = "Object.entries(localStorage).map(([name, text]) => name.length + text.length)"
    assert sum(page.evaluate(sizes)) < room
    page.get_by_role("button", name="All conversations").click()
    page.get_by_role("button", name=f"Delete {QUESTION}").click()
    assert NO_ROOM not in page.inner_text(".c-foot")
    again(page)
    assert page.get_by_role("textbox", name="Message").input_value() == "y" * 1_000_000


def test_a_conversation_is_renamed_and_deleted_with_the_keyboard(chatted) -> None:
    page = chatted
    page.get_by_role("button", name="All conversations").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Rename Why?").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "New name"
    page.keyboard.type("<b>Reasons</b>")
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "Rename <b>Reasons</b>"
    assert page.locator(".c-tab").first.inner_text() == "<b>Reasons</b>"
    page.keyboard.press("Enter")
    page.keyboard.type("Never")
    page.keyboard.press("Escape")  # neither the name nor the list goes
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == "Delete <b>Reasons</b>"
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "Undo"
    assert page.locator(".c-tab").all_inner_texts() == [QUESTION]
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "<b>Reasons</b>"
    page.get_by_role("button", name=f"Delete {QUESTION}").click()
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUSED) == "All conversations"
    again(page)
    assert page.locator(".c-tab").all_inner_texts() == ["<b>Reasons</b>"]


@pytest.mark.nightly
def test_the_last_conversation_can_be_deleted_too(chatted) -> None:
    page = chatted
    page.get_by_role("button", name="All conversations").click()
    for _ in range(2):
        page.locator(".c-row").get_by_role("button", name="Delete").first.click()
    assert page.locator(".c-message").count() == 0
    again(page)
    assert page.locator(".c-tab").all_inner_texts() == ["Conversation 1"]


@pytest.mark.nightly
def test_tokens_of_another_model_are_not_gone_on_from(chatted) -> None:
    page = chatted
    kept(page)
    page.evaluate(
        """() => { for (const [name, text] of Object.entries(localStorage)) {
          localStorage.setItem(name, text.replaceAll('"model":"tutor"', '"model":"larger"'));
        } }"""
    )
    page.evaluate("chat.keeper.write = () => {}")
    again(page)
    page.wait_for_function("document.querySelector('.c-model').textContent === 'tutor'")
    assert "Written by larger." in finished(page).inner_text()
    page.get_by_role("button", name="Tokens", exact=True).click()
    page.locator(".c-token").first.click()
    assert page.locator(".c-alternatives").count() == 0
    told = page.get_by_role("status").filter(has_text="larger wrote this answer")
    assert told.count() == 1
    asked = []
    page.on("request", lambda it: asked.append(it.post_data) if "next_token" in it.url else None)
    page.evaluate("document.querySelector('.c-next').open = true")
    refreshed(page, lambda: slide(page, "temperature", 0.5))
    assert "messages" in json.loads(asked[-1])


BROKEN = [
    "",
    "null",
    "[]",
    '{"version":2}',
    '{"version":1,"name":"","system":"","draft":"","chosen":0}',
    '{"version":1,"name":{},"system":"","draft":"","chosen":0,"turns":[]}',
    '{"version":1,"name":"","system":"","draft":"","chosen":0,"turns":[{"parent":7,"chosen":0,"text":""}]}',
    '{"version":1,"name":"","system":"","draft":"","chosen":0,"turns":[{"parent":null,"chosen":0,"text":1}]}',
    '{"version":1,"name":"","system":"","draft":"","chosen":0,"turns":[{"parent":null,"chosen":0,"tokens":[]}]}',
    '{"version":1,"name":"","system":"","draft":"","chosen":-1,"turns":[]}',
]  # fmt: skip


def test_what_storage_has_of_others_is_left_alone(browser, tutor) -> None:  # noqa: F811
    image = "<img src=x onerror=window.hacked=1>"
    turns = [{"parent": None, "chosen": 0, "text": image}]
    hostile = {"version": 1, "name": image, "system": "", "draft": "", "chosen": 9, "turns": turns}
    names = {f"yaie-chat:{index}": text for index, text in enumerate(BROKEN)}
    names |= {"yaie-chat:z": json.dumps(hostile), "yaie-chat-open": "5"}
    with visited(
        browser, tutor,
        before=f"for (const each of Object.entries({json.dumps(names)})) localStorage.setItem(...each);",
    ) as page:  # fmt: skip
        assert page.locator(".c-tab").all_inner_texts() == [image]
        assert page.locator(".c-user").count() == 1
        assert page.locator(".chat img").count() == 0
        page.wait_for_timeout(50)
        assert page.evaluate("window.hacked") is None
        assert set(names) <= set(page.evaluate("Object.keys(localStorage)"))


@pytest.mark.nightly
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_everybody_can_use_the_list_on_every_screen(browser, tutor, colours: str) -> None:  # noqa: F811
    with visited(browser, tutor, color_scheme=colours) as page:
        folded(page)
        for index in range(8):
            fake_answer(page, f"```python\nprint({index})\n```")
            ask(page, f"A question with a long title for a narrow list, number {index}")
            finished(page)
            if index < 7:
                page.get_by_role("button", name="+ New").click()
        page.get_by_role("button", name="All conversations").click()
        page.get_by_role("button", name="Rename").nth(3).click()
        page.get_by_role("button", name="Delete").last.click()
        page.get_by_role("button", name="Edit this message").click()
        for width, height in ((360, 640), (1280, 800)):
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_timeout(60)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            foot = page.locator(".c-foot").bounding_box()
            assert foot["y"] + foot["height"] <= height
            assert page.get_by_role("textbox", name="The message, edited").is_visible()
            violations = Axe().run(page).response["violations"]
            assert not violations, [(it["id"], it["nodes"][0]["html"]) for it in violations]
