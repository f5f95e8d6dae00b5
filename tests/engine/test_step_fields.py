"""What stands in the fields of a StepInput, and that it can go anywhere."""

import pickle
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.engine.test_encoder import VOCAB, encoder, make_request, share
from yaie.core.batch import StepPlan
from yaie.core.params import SamplingParams
from yaie.core.step import Arrays, NewSeats, StepInput
from yaie.engine.input.processor import resolve_seed


def full_step() -> StepInput:
    """A step with something in each field."""
    told = make_request(
        "a",
        [4, 5, 6],
        temperature=0.5,
        top_k=3,
        top_p=0.9,
        min_p=0.1,
        presence_penalty=1.0,
        frequency_penalty=0.5,
        repetition_penalty=1.5,
        logprobs=2,
        prompt_logprobs=1,
        logit_bias=((3, 1.5), (4, -2.0)),
    )
    told.seed = 2**63 - 1
    constrained = make_request("b", [7, 8], top_k=2**31 - 1)
    pooled: dict[str, Any] = {"pooling": "mean", "min_tokens": 4, "stop_token_ids": (11, VOCAB)}
    constrained.matcher = object()
    plan = StepPlan(
        [
            share(constrained, [3], start=1),
            share(told, [1, 2], num_tokens=5, drafts=[9, 8]),
            share(make_request("c", **pooled), [5], samples=False),
        ],
        swap_out=[(1, 2)],
        swap_in=[(3, 4), (5, 6)],
        copies=[(7, 8)],
    )
    step = encoder().encode(plan)
    step.extras["arriving"] = {
        "blocks": np.array([9], np.int32),
        "data": np.array([1, 2], np.uint8),
    }
    step.extras["leaving"] = {"blocks": np.array([10], np.int32)}
    return step


def test_a_step_says_what_its_plan_does() -> None:
    step = full_step()
    assert step.starts.tolist() == [1, 0, 0]
    assert step.num_tokens.tolist() == [1, 5, 1]
    assert step.samples.tolist() == [True, True, False]
    assert step.masked
    assert step.drafts.tolist() == [9, 8]
    assert step.num_drafts.tolist() == [0, 2, 0]
    assert said(step.extras["prompt_logprobs"]) == {"rows": [1], "num_top": [1]}
    assert said(step.extras["pooling"]) == {"rows": [2], "firsts": [0]}
    assert said(step.extras["logprobs"]) == {
        "rows": [1], "num_top": [2], "named": [[]], "num_named": [0]
    }  # fmt: skip
    assert step.swap_out.tolist() == [[1, 2]]
    assert step.swap_in.tolist() == [[3, 4], [5, 6]]
    assert step.copies.tolist() == [[7, 8]]
    new = step.new
    assert new is not None
    assert new.seats.tolist() == step.seats.tolist()
    assert new.tokens.tolist() == [7, 8, 4, 5, 6, 1, 2, 3]
    assert new.num_tokens.tolist() == new.num_prompt_tokens.tolist() == [2, 3, 3]
    assert new.temperature.tolist() == [1.0, 0.5, 1.0]
    assert new.top_k.tolist() == [VOCAB, 3, 0]
    assert new.top_p.tolist() == pytest.approx([1.0, 0.9, 1.0])
    assert new.min_p.tolist() == pytest.approx([0.0, 0.1, 0.0])
    assert new.random_seeds.tolist() == [0, 2**63 - 1, 0]
    assert set(new.extras) == {"penalties", "biases", "min_tokens"}
    assert said(new.extras["penalties"]) == {
        "rows": [1], "presence": [1], "frequency": [0.5], "repetition": [1.5]
    }  # fmt: skip
    assert said(new.extras["biases"]) == {"rows": [1, 1], "tokens": [3, 4], "values": [1.5, -2.0]}
    assert said(new.extras["min_tokens"]) == {"rows": [2], "least": [4], "tokens": [11]}


def said(arrays: Arrays) -> dict[str, Any]:
    return {name: array.tolist() for name, array in arrays.items()}


def test_a_step_that_nobody_asks_anything_of_says_nothing_more() -> None:
    step = encoder().encode(StepPlan([share(make_request("a"), [1])]))
    assert step.new is not None
    assert step.extras == step.new.extras == {}


def test_a_seed_of_one_s_own_does_not_depend_on_arrival() -> None:
    params = SamplingParams(seed=-5, n=2)
    first, second = (resolve_seed(params, 0, 10, index) for index in (0, 1))
    assert first != second
    assert [resolve_seed(params, 9, 77, index) for index in (0, 1)] == [first, second]
    assert all(0 <= seed < 2**63 for seed in (first, second))  # it must fit into `random_seeds`


def test_constrained_chunk_that_draws_nothing_waits_for_no_mask() -> None:
    request = make_request("a")
    request.matcher = object()
    assert not encoder().encode(StepPlan([share(request, [1], samples=False)])).masked


def test_only_computed_prompt_tokens_of_the_first_sibling_tell_of_the_prompt() -> None:
    first = make_request("a", [1, 2, 3], prompt_logprobs=0)
    fork = replace(make_request("a.1", [1, 2, 3], prompt_logprobs=0), fork_of=first)
    steps = encoder()
    items = [share(first, [1], num_tokens=2), share(fork, [1], num_tokens=2)]
    asked = steps.encode(StepPlan(items)).extras["prompt_logprobs"]
    assert asked["rows"].tolist() == [0]
    # The last prompt token comes before the first output token: it tells of no prompt token.
    assert steps.encode(StepPlan([share(first, [1], start=2)])).extras == {}


def test_step_of_nothing_but_moves_has_empty_arrays() -> None:
    step = encoder().encode(StepPlan(copies=[(1, 2)]))
    assert len(step.seats) == len(step.num_tokens) == len(step.table_seats) == 0
    assert (step.new, step.masked) == (None, False)


def walk(value: Any) -> list[Any]:
    """All that a StepInput is made of, down to arrays and numbers."""
    if is_dataclass(value):
        return [leaf for item in fields(value) for leaf in walk(getattr(value, item.name))]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in walk(item)]
    return [value]


def test_a_step_holds_arrays_and_numbers_only() -> None:
    leaves = walk(full_step())
    assert len(leaves) > len(fields(StepInput)) + len(fields(NewSeats)) - 2
    for leaf in leaves:
        if isinstance(leaf, np.ndarray):
            assert leaf.dtype.kind in "biuf"
        else:
            assert type(leaf) in (int, bool)


def test_arrays_have_the_shapes_and_dtypes_that_their_docstrings_give() -> None:
    step, empty = full_step(), encoder().encode(StepPlan([share(make_request("a"), [])]))
    for one in (step, empty):
        assert one.new is not None
        for name in ("seats", "starts", "num_tokens", "table_seats", "table_columns", "table_blocks",
                     "drafts", "num_drafts"):  # fmt: skip
            assert getattr(one, name).dtype == np.int32, name
            assert getattr(one, name).ndim == 1, name
        for name in ("swap_out", "swap_in", "copies"):
            assert getattr(one, name).dtype == np.int64, name
            assert getattr(one, name).shape[1:] == (2,), name
        for name in ("temperature", "top_p", "min_p"):
            assert getattr(one.new, name).dtype == np.float32, name
        for name in ("top_k", "random_seeds", "steps"):
            assert getattr(one.new, name).dtype == np.int64, name
        for name in ("seats", "tokens", "num_tokens", "num_prompt_tokens"):
            assert getattr(one.new, name).dtype == np.int32, name
        assert one.samples.dtype == np.bool_
        for extras in (one.extras, one.new.extras):
            for arrays in extras.values():
                rows = arrays.get("rows", np.zeros(1, np.int32))
                assert rows.dtype == np.int32
                if "rows" in arrays:
                    assert {len(array) for array in arrays.values()} == {len(rows)}


def test_pickled_step_is_the_same_step() -> None:
    step = full_step()
    buffers: list[pickle.PickleBuffer] = []
    for again in (
        pickle.loads(pickle.dumps(step, protocol=5)),
        pickle.loads(
            pickle.dumps(step, protocol=5, buffer_callback=buffers.append), buffers=buffers
        ),
    ):
        assert type(again) is StepInput
        for old, new in zip(walk(step), walk(again), strict=True):
            if isinstance(old, np.ndarray):
                assert old.dtype == new.dtype
                assert np.array_equal(old, new)
            else:
                assert old == new
