"""Pairs: two questions that differ in little and want opposite answers."""

import random
import re
from collections import Counter

import pytest

from book.tutor import wider
from book.tutor.polar import draw_pair, parse_pair, tag
from book.tutor.wider import Claim, ask_claim, load_wider

SAVES = parse_pair("paging ~ does ~ <save|spare // waste> memory")


def test_a_row_has_a_true_and_a_false_side() -> None:
    assert SAVES.question(True) == "Does paging [save|spare] memory"
    assert SAVES.question(False) == "Does paging waste memory"
    assert SAVES.sentence(True) == "paging [saves|spares] memory"
    assert SAVES.sentence(False, denied=True) == "paging doesn't waste memory"


@pytest.mark.parametrize(
    ("row", "said", "denied"),
    [
        ("keys ~ are ~ <kept // lost>", "keys are kept", "keys aren't kept"),
        ("keys ~ do ~ <stay // go>", "keys stay", "keys don't stay"),
        ("a row ~ can ~ <wait // go>", "a row can wait", "a row can't wait"),
        ("it ~ has to ~ <fit // wait>", "it has to fit", "it doesn't have to fit"),
        ("it ~ does ~ still <carry // miss> x", "it still carries x", "it doesn't still carry x"),
        ("it ~ does ~ <have // lack> [a|b]", "it has [a|b]", "it doesn't have [a|b]"),
        ("it ~ does ~ [even|just] <push // go>", "it [even|just] pushes", "it doesn't [even|just] push"),
    ],
)  # fmt: skip
def test_sentences_are_conjugated(row: str, said: str, denied: str) -> None:
    pair = parse_pair(row)
    assert pair.sentence(True) == said
    assert pair.sentence(True, denied=True) == denied


def test_a_question_alone_is_never_a_sentence() -> None:
    pair = parse_pair("Can I work <offline // only online>")
    assert (pair.true, pair.false) == (("Can I work offline",), ("Can I work only online",))
    drawn = {draw_pair(pair, True, random.Random(seed)) for seed in range(50)}
    assert drawn == {("Can I work offline", False)}


@pytest.mark.parametrize(
    "row", ["paging ~ does ~ save memory", "a ~ does <b // c>", "<a|b> ~ is ~ c"]
)
def test_a_row_that_is_no_pair_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match=r"has no|is no question"):
        parse_pair(row)


def test_what_is_said_fits_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wider, "as_typed", lambda text, rng, every_word: text)
    monkeypatch.setattr(wider, "DENIED", 0.0)
    claim = Claim("because.", "", pairs=(parse_pair("it ~ does ~ <grow // shrink>"),))
    rng = random.Random(0)
    asked = [ask_claim(claim, rng) for _ in range(800)]
    for question, reply in asked:
        # "Doesn't it grow" expects a yes; "it doesn't grow" says that it is not so.
        denied = "it doesn't" in question
        first = question.partition(", or ")[0]
        assert reply.startswith("Yes") == (("grow" in first) != denied), question
    forms = Counter((reply[:2], "it doesn't" in question) for question, reply in asked)
    assert len(forms) == 4
    assert min(forms.values()) > 40


def test_a_question_that_names_both_sides_asks_for_the_first() -> None:
    drawn = {draw_pair(SAVES, False, random.Random(seed))[0] for seed in range(400)}
    assert "Does paging waste memory, or does it [save|spare] memory" in drawn
    assert "Does paging waste memory, or not" in drawn
    assert not any(text.startswith("Does paging [save") for text in drawn)


@pytest.mark.parametrize(
    ("row", "asked"),
    [
        ("paging ~ does ~ <save // waste> memory", "doesn't it"),
        ("keys ~ are ~ <kept // lost>", "aren't they"),
        ("a row ~ can ~ <wait // go>", "can't it"),
        ("queries ~ need to ~ <wait // go>", "don't they"),
        ("I ~ can ~ <wait // go>", ""),
    ],
)
def test_a_tag_fits_its_sentence(row: str, asked: str) -> None:
    assert tag(parse_pair(row).true) == asked


def test_only_what_is_not_denied_is_tagged() -> None:
    drawn = [draw_pair(SAVES, True, random.Random(seed)) for seed in range(400)]
    tagged = {text for text, framed in drawn if not framed and text.endswith(", doesn't it")}
    assert tagged == {"paging [saves|spares] memory, doesn't it"}


def test_pairs_are_many_and_on_every_subject_balanced() -> None:
    pairs = [(claim.term, pair) for claim in load_wider().claims for pair in claim.pairs]
    assert len(pairs) > 800
    assert len({term for term, _ in pairs}) > 150
    for _, pair in pairs:
        sides = (*pair.true, *pair.false)
        assert not re.search(r"[<>~]|//|\|\|", " ".join(sides)), pair
        assert pair.question(True) != pair.question(False)
