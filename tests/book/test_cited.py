"""The page of references has every paper that an article links to, once."""

import re

from book.tools.cited import NAMED, PAPERS, render_cited
from book.tools.links import links_in
from tests.book.reading import SOURCE

REFERENCES = (SOURCE / "references.md").read_text("utf-8")


def papers_in(text: str) -> set[str]:
    return set(filter(PAPERS.match, links_in(text)))


def test_every_paper_of_an_article_is_there():
    lists = [render_cited(*found["pages"].split()) for found in NAMED.finditer(REFERENCES)]
    generated = set(re.findall(r'href="(https:[^"]+)"', "".join(lists)))
    by_hand = papers_in(REFERENCES)
    missing = {
        path.stem: sorted(papers_in(path.read_text("utf-8")) - generated - by_hand)
        for path in SOURCE.glob("*.md")
    }
    assert {page: papers for page, papers in missing.items() if papers} == {}
    assert len(generated) > 20
    assert generated.isdisjoint(by_hand)
