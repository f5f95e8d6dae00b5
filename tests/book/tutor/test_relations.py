"""Relations become questions for yes or no, with the answer that the relation has."""

import random

import pytest

from book.tutor import wider
from book.tutor.glossary import load_phrasings
from book.tutor.relations import PARTS, parse_relation
from book.tutor.templates import expand
from book.tutor.wider import Claim, ask_claim, load_wider


def questions(row: str, holds: bool) -> set[str]:
    return {text for pair in parse_relation(row) for text in expand(pair.question(holds))}


@pytest.mark.parametrize(
    ("row", "yes", "no"),
    [
        ("down | paging | waste", "Does paging cut waste", "Does paging raise waste"),
        ("up | paging | +speed", "Does paging raise speed", "Does paging cut speed"),
        ("up | paging | +speed", "Is paging good for speed", "Is paging bad for speed"),
        ("up | paging | -waste", "Is paging bad for waste", "Is paging good for waste"),
        ("down | paging | -waste", "Is paging good for waste", "Is paging bad for waste"),
        ("slower | a batch | it", "Does a batch slow down it", "Does a batch speed up it"),
        ("faster | a batch | it", "Does a batch speed up it", "Does a batch slow down it"),
        ("need | a | b", "Would a fail without b", "Would a run all the same without b"),
        ("need_not | a | b", "Is a possible without b", "Is a impossible without b"),
        ("can | a | wait", "Is it possible for a to wait", "Is a unable to wait"),
        ("cannot | a | wait", "Is it impossible for a to wait", "Is a able to wait"),
        ("may | wait", "Am I allowed to wait", "Am I forbidden to wait"),
        ("may_not | wait", "Am I forbidden to wait", "Am I allowed to wait"),
        ("wise | wait", "Should I wait", "Is it a mistake to wait"),
        ("unwise | wait", "Is it a mistake to wait", "Should I wait"),
        ("before | a | b", "Is it first a, then b", "Is it first b, then a"),
        ("before | a | b", "Does b follow a", "Does b precede a"),
        ("over | a | b | fast | slow", "Is a fast than b", "Is a slow than b"),
        ("over | a | b | fast | slow", "Would b be slow than a", "Would b be fast than a"),
        ("is | *keys | kept | lost", "Are keys kept", "Are keys lost"),
        ("in | *keys | here | there", "Will I find keys here", "Will I find keys there"),
        ("who | a | b | wait", "Does a wait", "Does b wait"),
        ("same | a | speed", "Do I have the same speed with a", "Do I have other speed with a"),
        ("more | *a | b | use | room", "Do a use more room than b", "Do a use less room than b"),
    ],
)
def test_a_relation_is_asked_both_ways(row: str, yes: str, no: str) -> None:
    assert yes in questions(row, True)
    assert no in questions(row, False)
    assert yes not in questions(row, False)
    assert no not in questions(row, True)


@pytest.mark.parametrize("row", ["down | paging", "grow | paging | waste", "may | a | b", ""])
def test_a_row_that_is_no_relation_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match="is no relation"):
        parse_relation(row)


def test_all_alternatives_of_a_part_are_met() -> None:
    asked = questions("before | first|second|third | last", True)
    for word in ("first", "second", "third"):
        assert any(word in text for text in asked)


@pytest.mark.nightly
def test_no_way_to_ask_has_both_answers_or_an_open_part() -> None:
    relations = [ways for claim in load_wider().claims for ways in claim.relations]
    assert len(relations) > 400
    for ways in relations:
        for pair in ways:
            sides = [set(expand(pair.question(holds))) for holds in (True, False)]
            assert not sides[0] & sides[1], pair
            assert not set("{}<>[]|*~") & set(" ".join(sides[0] | sides[1])), pair


def test_every_family_has_ways_to_ask_and_relations() -> None:
    rows = load_phrasings("relations")
    assert set(rows) - {"good", "gain"} <= set(PARTS)
    assert all(len(family["rows"]) >= 3 for family in rows.values())


def test_a_claim_with_relations_is_asked_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wider, "as_typed", lambda text, rng, every_word: text)
    claim = Claim(
        "because.", "", yes=("Ok",), no=("Not ok",), relations=(parse_relation("may | wait"),)
    )
    rng = random.Random(0)
    asked = [ask_claim(claim, rng) for _ in range(600)]
    by_relation = [question for question, _ in asked if "ok" not in question.lower()]
    assert 0.3 < len(by_relation) / 600 < 0.5
    assert ("Am I forbidden to wait", "No: because.") in asked
    assert ("Am I allowed to wait", "Yes: because.") in asked
