"""Which replica has seen which beginnings, beside the naive list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.naive_prefixes import NaivePrefixes, beginnings
from yaie.cluster.prefixes import CHUNK, HASH_BYTES, MOST_CHUNKS, PrefixIndex, chain

REPLICAS = ("a", "b", "c")
# Prompts over a tiny alphabet of chunks share many beginnings; the rest is less than a chunk.
TEXTS = st.builds(
    lambda chunks, rest: b"".join(letter * CHUNK for letter in chunks) + rest,
    st.lists(st.sampled_from([b"x", b"y"]), max_size=6),
    st.sampled_from([b"", b"x", b"y" * (CHUNK - 1)]),
)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(REPLICAS), TEXTS),
        st.tuples(st.just("keep"), st.sets(st.sampled_from(REPLICAS)), st.just(b"")),
    ),
    max_size=12,
)


@given(calls=CALLS, asked=TEXTS, capacity=st.integers(1, 12))
def test_the_index_remembers_what_the_naive_list_does(calls, asked, capacity) -> None:
    index, naive = PrefixIndex(capacity), NaivePrefixes(capacity)
    for call, who, text in calls:
        if call == "add":
            index.add(who, chain(text))
            naive.add(who, text)
        else:
            index.keep(who)
            naive.keep(who)
        index.check()
        for name in REPLICAS:
            assert index.match(name, chain(asked)) == naive.match(name, asked), name


@given(one=TEXTS, other=TEXTS)
def test_hashes_are_equal_as_far_as_the_texts_are(one: bytes, other: bytes) -> None:
    same = [a == b for a, b in zip(beginnings(one), beginnings(other), strict=False)]
    assert [a == b for a, b in zip(chain(one), chain(other), strict=False)] == same


def test_a_chunk_counts_once_it_is_whole() -> None:
    assert [len(chain(b"x" * size)) for size in (0, CHUNK - 1, CHUNK, 2 * CHUNK)] == [0, 0, 1, 2]


def test_no_more_than_the_start_of_a_long_prompt_is_looked_at() -> None:
    hashes = chain(b"x" * CHUNK * (MOST_CHUNKS + 5))
    assert len(hashes) == MOST_CHUNKS
    assert {len(one) for one in hashes} == {HASH_BYTES}


def test_an_index_that_may_remember_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        PrefixIndex(0)
