"""A chapter's prediction says in which section its answer is, and every chapter has such an answer."""

import pytest

from book.tools.contents import slug
from book.tools.predictions import ANSWER, PREDICTION, answering_section, render_prediction
from tests.book.reading import SOURCE

ASKED = "# One\n\n> [!PREDICT]\n> How many?\n\n"


def rendered(text: str) -> str:
    [found] = PREDICTION.finditer(text)
    return render_prediction(found, answering_section(text))


def test_the_question_links_to_the_section_of_its_answer():
    text = (
        f"{ASKED}## Before\n\n### Half of the `square`\n\n**The prediction.** Nine.\n\n## After\n"
    )
    assert answering_section(text) == "Half of the `square`"
    assert rendered(text).endswith(
        '\n\nHow many?\n\n<p class="answered">Answered in <a href="#half-of-the-square">'
        "<em>Half of the <code>square</code></em></a></p>\n</blockquote>\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "## Before\n\nIn the prediction it is nine.\n",
        "Nine. **The prediction.** Of a paragraph it is the first word.\n",
        "## Before\n\n```text\n**The prediction.** Nine.\n```\n",
        "**The prediction.** Nine, before any section.\n\n## After\n",
    ],
)
def test_without_such_a_paragraph_below_a_heading_nothing_is_added(text):
    assert answering_section(ASKED + text) == ""
    assert "Answered" not in rendered(ASKED + text)


def test_a_comment_in_a_listing_is_no_section():
    text = "## Before\n\n```python\n## no heading\n```\n\n**The prediction.** Nine.\n"
    assert answering_section(ASKED + text) == "Before"


def test_every_prediction_has_its_answer_under_its_name():
    texts = {path.stem: path.read_text("utf-8") for path in SOURCE.glob("*.md")}
    asking = {page: text for page, text in texts.items() if PREDICTION.search(text)}
    assert len(asking) > 40
    assert [page for page, text in asking.items() if not ANSWER.search(text)] == []
    # Where it comes before the first section, it stands right below the question.
    assert sum(map(bool, map(answering_section, asking.values()))) > 0.9 * len(asking)


def test_a_prediction_s_section_has_an_address_of_its_own():
    for path in SOURCE.glob("*.md"):
        text = path.read_text("utf-8")
        if section := answering_section(text):
            titles = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
            assert [slug(title) for title in titles].count(slug(section)) == 1, path.stem
