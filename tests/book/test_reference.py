"""Pages made from what they describe keep names as they are typed."""

import re

from book.tools.glossary import all_terms
from book.tools.reference import render_glossary
from book.tutor.glossary import load_knowledge


def test_an_option_in_the_glossary_keeps_its_two_hyphens():
    page = render_glossary()
    assert r"\-\-mine" in page
    assert re.search(r"(?<!\\)--[a-z]", page) is None


def test_terms_that_came_after_the_tutor_are_in_the_glossary_and_lead_to_their_chapter():
    page = render_glossary()
    taught = {term.name for term in load_knowledge().terms}
    later = [term for term in all_terms() if term.name not in taught]
    assert [term.name for term in later][:2] == ["hybrid model", "recurrent state"]
    chapters = {
        "seat": "[The architecture](architecture.md)",
        "unread token": "[The architecture](architecture.md)",
    }
    for term in later:
        entry = page.partition(f"\n{term.name}\n: ")[2].partition("\n\n")[0]
        assert entry.startswith(term.what[:20])
        hybrid = "[Hybrid models: a state beside the pages](state-cache.md)"
        assert f"Chapter: {chapters.get(term.name, hybrid)}" in entry
