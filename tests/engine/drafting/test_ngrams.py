"""The n-gram proposer finds what a scan of the text finds, and reads each token once."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solutions.speculative import NgramIndex
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.engine.drafting.ngrams import MOST_READ, NgramProposer

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def scanned(text: Sequence[int], most: int, longest: int = 4, shortest: int = 2) -> list[int]:
    """What followed the latest earlier occurrence of the longest n-gram at the end, by looking."""
    for length in range(longest, shortest - 1, -1):
        for start in range(len(text) - length - 1, -1, -1):
            if text[start : start + length] == text[len(text) - length :]:
                return list(text[start + length : start + length + most])
    return []


def proposer() -> NgramProposer:
    return NgramProposer(NgramIndex)


def proposed(proposer: NgramProposer, one: Request, most: int) -> list[int]:
    (drafts,) = proposer.propose([(one, most)])
    return list(drafts)


def request(text: Sequence[int]) -> Request:
    return Request("r", list(text), SamplingParams())


@given(TEXTS, st.integers(1, 6))
def test_proposal_is_what_a_scan_finds(text: list[int], most: int) -> None:
    assert proposed(proposer(), request(text), most) == scanned(text, most)


@given(TEXTS, st.lists(st.integers(1, 5), max_size=8))
def test_a_text_that_grows_is_read_on(text: list[int], growth: list[int]) -> None:
    guesses, one = proposer(), request(text)
    for count in growth:
        assert proposed(guesses, one, 3) == scanned(one.token_ids, 3)
        one.token_ids += [(len(one.token_ids) + i) % 4 for i in range(count)]


def test_long_prompt_is_read_over_several_calls() -> None:
    guesses, one = proposer(), request([7, 8, 9] * MOST_READ)
    calls = [proposed(guesses, one, 3) for _ in range(4)]
    assert calls == [[], [], [7, 8, 9], [7, 8, 9]]


def test_index_goes_with_its_request() -> None:
    guesses, one = proposer(), request([1, 2, 1, 2])
    proposed(guesses, one, 1)
    assert len(guesses._indexes) == 1
    del one
    assert len(guesses._indexes) == 0


@pytest.mark.parametrize("text", [[5], [5, 5], [1, 2, 3, 4]])
def test_nothing_is_proposed_for_what_has_not_stood_before(text: list[int]) -> None:
    assert proposed(proposer(), request(text), 4) == []
