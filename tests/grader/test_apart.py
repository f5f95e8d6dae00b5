"""Equal numbers that are not the same object, and ids that were cut."""

import sys

import pytest

from grader.kit import Mismatch
from grader.kit.apart import FRAMES, IDS, MASKS, Number, apart, deep_calls, expect_unchanged, is_cut


def test_numbers_that_are_equal_are_objects_of_their_own() -> None:
    ids = [300, 70_000]
    again = apart(ids)
    assert again == ids
    assert not any(one is other for one, other in zip(ids, again, strict=True))
    assert Number(-1) == -1
    assert Number(-1) is not Number(-1)
    assert {Number(7): "found"}[7] == "found"


def test_pairs_of_ids_are_alike_in_their_lowest_bits() -> None:
    for pair, mask in zip(IDS[1:], MASKS, strict=True):
        assert len({number & mask for number in pair}) == 1
    assert is_cut([1, 2], [0x101, 2])
    assert not is_cut([0x101, 2], [0x101, 2])
    assert not is_cut([3, 2], [0x101, 2])


def test_recursion_may_be_deep_in_the_block_alone() -> None:
    def depth(count: int) -> int:
        return 1 + depth(count - 1) if count else 0

    before = sys.getrecursionlimit()
    with deep_calls():
        assert sys.getrecursionlimit() >= FRAMES
        assert depth(2000) == 2000
    assert sys.getrecursionlimit() == before


def test_an_argument_that_was_changed_is_told_by_its_name() -> None:
    expect_unchanged([1, 2], [1, 2], "the list")
    with pytest.raises(Mismatch, match="the list was changed"):
        expect_unchanged([2, 1], [1, 2], "the list")
