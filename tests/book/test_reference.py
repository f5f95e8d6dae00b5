"""Pages made from what they describe keep names as they are typed."""

import re

from book.tools.reference import render_glossary


def test_an_option_in_the_glossary_keeps_its_two_hyphens():
    page = render_glossary()
    assert r"\-\-mine" in page
    assert re.search(r"(?<!\\)--[a-z]", page) is None
