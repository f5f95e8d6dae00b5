"""The order in which replicas are asked."""

from hypothesis import given
from hypothesis import strategies as st

from yaie.cluster.policy import preference

NAMES = ("a", "b", "c", "d")
LOADS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9), min_size=1)
SEEN = st.fixed_dictionaries({name: st.integers(0, 3) for name in NAMES})


def test_the_longest_beginning_wins_while_loads_are_alike() -> None:
    seen = {"a": 1, "b": 7, "c": 0}
    assert preference({"a": 0, "b": 4, "c": 0}, seen.__getitem__, 4)[0] == "b"


def test_a_replica_that_is_too_busy_comes_last_whatever_it_has_seen() -> None:
    seen = {"a": 1, "b": 7, "c": 0}
    assert preference({"a": 0, "b": 5, "c": 0}, seen.__getitem__, 4) == ["a", "c", "b"]


def test_among_equals_the_least_busy_is_first() -> None:
    assert preference({"a": 3, "b": 1, "c": 2}, lambda name: 5, 9) == ["b", "c", "a"]


def test_without_replicas_there_is_no_order() -> None:
    assert preference({}, lambda name: 0, 4) == []


@given(loads=LOADS, seen=SEEN, imbalance=st.integers(0, 9), key=st.binary(max_size=2))
def test_the_first_is_the_best_of_those_that_are_not_too_busy(loads, seen, imbalance, key) -> None:
    order = preference(loads, seen.__getitem__, imbalance, key)
    assert sorted(order) == sorted(loads)
    fit = [name for name in loads if loads[name] - min(loads.values()) <= imbalance]
    assert order[0] in fit
    assert seen[order[0]] == max(seen[name] for name in fit)


@given(key=st.binary(min_size=1, max_size=8))
def test_two_routers_agree_on_a_prompt_that_is_new_to_both(key: bytes) -> None:
    """And keep agreeing, but for those of a replica that has gone."""
    idle = dict.fromkeys(NAMES, 0)
    order = preference(idle, lambda name: 0, 4, key)
    assert preference(dict(reversed(idle.items())), lambda name: 0, 4, key) == order
    del idle[order[2]]
    assert preference(idle, lambda name: 0, 4, key)[0] == order[0]


def test_new_prompts_are_spread_over_idle_replicas() -> None:
    idle = dict.fromkeys(NAMES, 0)
    first = [preference(idle, lambda name: 0, 4, bytes([key]))[0] for key in range(256)]
    assert min(first.count(name) for name in NAMES) > 32
