"""A chapter's first question, `> [!PREDICT]`, and the way from there to its answer.

The paragraph that answers it begins with **The prediction.**; the question names its section.
"""

import re

from book.tools.contents import slug
from book.tools.fences import FENCE
from book.tools.markup import inline

PREDICTION = re.compile(r"^> \[!PREDICT\]\n(?P<text>(?:^>.*\n?)+)", re.M)
ANSWER = re.compile(r"^(?:[-*] |\d+\. )?\*\*The prediction\.\*\*", re.M)
SECTION = re.compile(r"^##+ (?P<title>.+)$", re.M)


def answering_section(markdown: str) -> str:
    """The title of the section whose paragraph answers the prediction; empty if there is none."""
    text = FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), markdown)
    answer = ANSWER.search(text)
    above = [*SECTION.finditer(text, 0, answer.start())] if answer else []
    return above[-1]["title"] if above else ""


def render_prediction(found: re.Match[str], section: str = "") -> str:
    """A question to answer before reading on, in the form of mdBook's admonitions."""
    text = re.sub(r"^> ?", "", found["text"], flags=re.M).strip()
    where = ""
    if section:
        link = f'<a href="#{slug(section)}"><em>{inline(section)}</em></a>'
        where = f'<p class="answered">Answered in {link}</p>\n'
    return (
        '<blockquote class="blockquote-tag blockquote-tag-predict">\n'
        f'<p class="blockquote-tag-title">Predict</p>\n\n{text}\n\n{where}</blockquote>\n'
    )
