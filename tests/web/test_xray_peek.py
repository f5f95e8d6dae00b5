"""What the page asks for "next token" is marked: it takes no letter from the visitor's own requests."""

from typing import Any

from tests.book.conftest import browser  # noqa: F401
from tests.server.conftest import LiveServer
from tests.web.chat_pages import ask, finished, refreshed, tutor, visited  # noqa: F401

FIRST_OF = """(peek) => {
  const isWanted = (it) => Boolean(it.peek) === peek;
  const at = xray.store.records.findIndex(({ new: all = [] }) => all.some(isWanted));
  xray.store.seek(at);
  return xray.store.state.n;
}"""


def first(page: Any, *, peek: bool) -> None:
    """The step to which the first such request came."""
    step = page.evaluate(FIRST_OF, peek)
    page.wait_for_selector(f".xray[data-step='{step}']")


def test_a_look_ahead_is_marked_and_the_first_question_is_a(
    browser: Any,  # noqa: F811
    tutor: LiveServer,  # noqa: F811
) -> None:
    with visited(browser, tutor) as page:
        box = page.get_by_role("textbox", name="Message")
        refreshed(page, lambda: box.fill("What is a"))
        ask(page)
        finished(page)
        page.wait_for_function("xray.store.records.length > 3")
        first(page, peek=True)
        assert page.inner_text(".x-story").startswith("“Next token” looks ahead, as “?”.")
        assert page.is_visible(".x-key-peek")
        first(page, peek=False)
        assert page.inner_text(".x-story").startswith("A arrives.")
        assert page.inner_text(".x-panel-queues .x-chip") == "A"


def test_a_saved_recording_keeps_the_mark(browser: Any, tutor: LiveServer) -> None:  # noqa: F811
    with visited(browser, tutor) as page:
        box = page.get_by_role("textbox", name="Message")
        refreshed(page, lambda: box.fill("Why"))
        page.wait_for_function("xray.store.records.length > 0")
        marks = page.evaluate(
            """async () => {
              const { snapshotOf } = await import('./xray/snapshot.js');
              return snapshotOf(xray.store.head).requests.map(({ peek }) => peek);
            }"""
        )
        assert marks == [True]
