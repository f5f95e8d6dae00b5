"""Claims, situations and sides of terms: they name known terms, and get the answer they want."""

import random
from collections.abc import Mapping

import pytest

from book.tutor import TEXTS, wider
from book.tutor.dialogues import with_verdict
from book.tutor.glossary import Term, load_knowledge, load_phrasings, mentions, sentences
from book.tutor.polar import parse_pair
from book.tutor.questions import as_typed, exchange
from book.tutor.relations import parse_relation
from book.tutor.wider import (
    Claim,
    Situation,
    Wider,
    ask_claim,
    ask_facet,
    ask_situation,
    load_wider,
)
from yaie.core.compat import tomllib

DOUBTS = ("wrong", "false", "untrue", "incorrect", "mistak", "error", "myth", "misunder")


@pytest.fixture(scope="module")
def known() -> Wider:
    return load_wider()


@pytest.fixture(scope="module")
def names() -> Mapping[str, Term]:
    return load_knowledge().by_name


def test_a_claim_is_asked_both_ways_about_a_known_term(
    known: Wider, names: Mapping[str, Term]
) -> None:
    assert len(known.claims) > 500
    for claim in known.claims:
        assert claim.term in {"", *names}, claim.text
        assert claim.pairs or claim.relations or (claim.yes and claim.no), claim.text
        assert claim.text.endswith("."), claim.text
        assert len(sentences(claim.text)) <= 3, claim.text
        rows = (*claim.yes, *claim.no, *claim.true, *claim.false)
        assert claim.term or not any("{t}" in row for row in rows), claim.text


def test_a_situation_mentions_its_facts(known: Wider, names: Mapping[str, Term]) -> None:
    assert len(known.situations) > 100
    for situation in known.situations:
        assert situation.topic in names, situation.ask[0]
        assert len(situation.ask) >= 2, situation.ask[0]
        assert mentions(situation.answer, situation.facts), situation.ask[0]
        assert not set(situation.ask) & set(situation.later), situation.ask[0]
        assert len(situation.answer) < 420, situation.ask[0]


def test_sides_belong_to_known_terms_and_have_templates(
    known: Wider, names: Mapping[str, Term]
) -> None:
    assert known.facets.keys() <= names.keys()
    sides = {side for facets in known.facets.values() for side in facets}
    assert sides == load_phrasings("facets").keys()
    texts = [text for facets in known.facets.values() for text in facets.values()]
    assert all(text[-1] in ".?!" and len(text) < 300 for text in texts)


def test_yes_and_no_follow_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wider, "as_typed", lambda text, rng, every_word: text)
    claim = Claim(
        "because.", "", yes=("Is it so",), no=("Is it not",), true=("it is",), false=("it isn't",)
    )
    rng = random.Random(0)
    asked = {ask_claim(claim, rng) for _ in range(600)}
    assert {reply for _, reply in asked} == {"Yes: because.", "No: because."}
    turned = 0
    for question, reply in asked:
        lower = question.lower().replace("true or false", "")
        if "it" in lower.split() and len(lower.split()) > 3:
            denied = "not" in lower or "isn't" in lower
            doubted = any(word in lower for word in DOUBTS)
            turned += doubted
            assert reply.startswith("No") == (denied != doubted), question
    assert turned > 10


def test_further_questions_go_to_the_claim_that_they_name(known: Wider) -> None:
    tables = [
        table
        for path in sorted((TEXTS / "knowledge").glob("*.toml"))
        for table in tomllib.loads(path.read_text(encoding="utf-8")).get("claim", [])
        if "same_as" in table
    ]
    assert len(tables) > 50
    for table in tables:
        (claim,) = (c for c in known.claims if c.text.startswith(table["same_as"]))
        assert set(table.get("yes", ())) <= set(claim.yes)
        assert set(table.get("no", ())) <= set(claim.no)
        assert set(map(parse_pair, table.get("pairs", ()))) <= set(claim.pairs)
        assert set(map(parse_relation, table.get("relations", ()))) <= set(claim.relations)
        further = sum(len(table.get(key, ())) for key in ("yes", "pairs", "relations"))
        assert len(claim.yes) + len(claim.pairs) + len(claim.relations) > further


def test_further_questions_go_to_the_situation_that_they_name() -> None:
    entries = [
        Situation("block", ("a",), "It waits.", ("waits",)),
        Situation("page", ("b",), "It waits."),
    ]
    more = {"topic": "block", "same_as": "It w", "ask": ["c"]}
    assert wider._met_again(entries, [more]) == (
        Situation("block", ("a", "c"), "It waits.", ("waits",)),
        entries[1],
    )
    with pytest.raises(ValueError, match="0 situations of 'seat'"):
        wider._met_again(entries, [more | {"topic": "seat"}])


def test_the_sides_of_a_term_are_gathered_from_all_files(known: Wider) -> None:
    """`default` is in a file of its own; it must not hide what other files say."""
    assert {"size", "default"} <= known.facets["block"].keys()
    assert {"cost", "next"} <= known.facets["prefill"].keys()


def test_no_word_is_left_out_of_a_claim() -> None:
    text = "does a token see only the tokens that come before it"
    typed = {as_typed(text, random.Random(seed), every_word=True) for seed in range(300)}
    shortened = {as_typed(text, random.Random(seed)) for seed in range(300)}
    assert min(len(question.split()) for question in typed) > 8
    assert min(len(question.split()) for question in shortened) < 9


def test_a_later_question_comes_only_after_its_topic(known: Wider) -> None:
    assert len(known.later) > 30
    for topic, entries in known.later.items():
        for entry in entries:
            assert entry.topic == topic
            assert ask_situation(entry, random.Random(0), follow=True)


def test_questions_are_filled(known: Wider, names: Mapping[str, Term]) -> None:
    rng = random.Random(1)
    sided = [names[name] for name in known.facets]
    for _ in range(500):
        texts = [
            ask_situation(rng.choice(known.situations), rng),
            ask_claim(rng.choice(known.claims), rng, follow=rng.random() < 0.5)[0],
            ask_facet(rng.choice(sided), rng, follow=rng.random() < 0.5)[0],
        ]
        assert all(text.strip() and not set("{}[]|") & set(text) for text in texts), texts


def test_only_questions_for_yes_or_no_get_a_verdict() -> None:
    reply = "It helps."
    assert with_verdict("why", "Is paging needed", reply) == "Yes: It helps."
    assert with_verdict("why", "Can we do without paging", reply) == "No: It helps."
    assert with_verdict("why", "Do you know why paging is useful", reply) == reply
    assert with_verdict("why", "Why paging", reply) == reply
    assert with_verdict("contrast", "Is a block the same as a slot", reply) == "No: It helps."
    assert with_verdict("contrast", "Are blocks and slots different", reply) == "Yes: It helps."
    assert with_verdict("contrast", "blocks vs slots", reply) == reply
    assert (
        with_verdict("contrast", "Does a block mean the same as a slot", reply) == "No: It helps."
    )
    assert with_verdict("follow_contrast", "Isn't it just a slot", reply) == "No: It helps."
    assert with_verdict("contrast", "Can you explain block vs slot", reply) == reply


def test_words_are_exchanged_for_their_like() -> None:
    texts = {exchange("why is a big request slow", random.Random(seed)) for seed in range(99)}
    assert len(texts) > 20
    assert exchange("kv {t} top-p", random.Random(0)) == "kv {t} top-p"


def test_the_first_word_of_a_question_is_exchanged_too() -> None:
    texts = {
        exchange("How often is a Triton kernel run", random.Random(seed)) for seed in range(99)
    }
    assert any(text.startswith("How frequently") for text in texts)
    assert all(text[0].isupper() and "Triton kernel" in text for text in texts)
    assert exchange("I'd need one's Paged", random.Random(0)).startswith("I'd")


def test_like_words_are_two_or_more_and_no_numbers() -> None:
    groups = [row.split("|") for row in load_phrasings("variety_more")["same"]["words"]]
    assert len(groups) > 300
    assert all(len(set(group)) == len(group) > 1 for group in groups)
    words = [word for group in groups for word in group]
    numbers = [word for word in words if any(letter.isdigit() for letter in word)]
    assert numbers == [], "a sum may hold it"
