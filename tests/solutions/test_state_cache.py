"""Lab 22's reference: against other people's operators, and over whole texts."""

import random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grader.suites.state_cache.rules import NAMES, at, delta, delta_tokens, states_of
from solutions.state_cache import (
    Checkpoints,
    StatePool,
    cut_share,
    decays,
    delta_chunk,
    delta_step,
    read_states,
    short_conv,
    write_states,
)
from yaie.core.contracts.states import StateTensor
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus

CPU = torch.device("cpu")


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("width", [2, 3, 4])
def test_the_convolution_is_pytorch_s(width: int) -> None:
    """Whose weight has the oldest input's factor first, as ours."""
    x, weight, bias = draw(9, 5), draw(5, width, seed=1), draw(5, seed=2)
    tails = draw(1, 5, width - 1, seed=3)
    out, after = short_conv(x, weight, bias, tails, torch.tensor([0, 9], dtype=torch.int32))
    inputs = torch.cat([tails[0], x.t()], dim=1)
    right = F.conv1d(inputs[None], weight[:, None], bias, groups=5)[0].t()
    torch.testing.assert_close(out, right)
    torch.testing.assert_close(after[0], inputs[:, -(width - 1) :])


@settings(max_examples=30)
@given(
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 99),
    group=st.integers(1, 3),
)  # fmt: skip
def test_a_text_in_any_pieces_leaves_the_same_state(cuts: list[int], seed: int, group: int) -> None:
    """Pieces of one token go through the step, others through the chunk."""
    tokens = delta_tokens(2, sum(cuts), group=group, seed=seed)
    states = states_of(tokens)
    right, after = delta(tokens, states)
    outs, first = [], 0
    for length in cuts:
        piece = at(tokens, slice(first, first + length))
        first += length
        if length == 1:
            one = at(piece, 0)
            out, states = delta_step(*(one[name] for name in NAMES), states)
            out = out[:, None]
        else:
            out, states = delta_chunk(*(piece[name] for name in NAMES), states)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, 1), right, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(states, after, rtol=1e-8, atol=1e-8)


def test_a_chunk_in_float32_is_as_near_as_its_tokens_one_by_one() -> None:
    tokens = delta_tokens(3, 64, d_k=32, d_v=32, seed=5)
    states = states_of(tokens)
    right, _ = delta(tokens, states)
    narrow = {name: one.float() for name, one in tokens.items()}
    chunk, _ = delta_chunk(*(narrow[name] for name in NAMES), states.float())
    state, outs = states.float(), []
    for t in range(64):
        one = at(narrow, t)
        out, state = delta_step(*(one[name] for name in NAMES), state)
        outs.append(out)
    by_token = (torch.stack(outs, 1) - right).abs().max()
    assert (chunk - right).abs().max() < 4 * by_token


def test_decays_of_a_long_chunk_are_no_differences() -> None:
    log_decay = torch.full((2, 64), -50.0)
    log_decay[1] = -1e-4
    left = decays(log_decay)
    assert left.isfinite().all()
    assert left[1, 63, 0].item() == pytest.approx(torch.tensor(-63e-4).exp().item(), rel=1e-6)


def test_a_pool_takes_little_more_than_its_states() -> None:
    layers = [(StateTensor((64, 3), torch.bfloat16), StateTensor((4, 16, 24), torch.float32))] * 6
    pool = StatePool(layers, 5, CPU)
    wanted = 5 * sum(one.num_bytes for layer in layers for one in layer)
    storages = {
        one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
        for layer in pool.layers
        for one in layer
    }
    assert len(storages) == 2
    assert wanted <= sum(storages.values()) < 1.05 * wanted


def test_a_fork_and_its_parent_part() -> None:
    pool = StatePool([(StateTensor((3,), torch.float32),)], 4, CPU)
    ((tensor,),) = pool.layers
    slots, fresh = torch.tensor([1, 2]), torch.tensor([False, False])
    write_states(tensor, slots[:1], torch.ones(1, 3))
    pool.copy(slots[:1], slots[1:])
    states = read_states(tensor, slots, fresh, torch.float32)
    write_states(tensor, slots, states + torch.tensor([[1.0], [10.0]]))
    assert tensor[:, 0].tolist() == [0, 2, 11, 0]


def shares_of(length: int, budget: int, size: int, wanted: list[int]) -> list[tuple[int, int]]:
    """A prompt's shares, (tokens, depth of what is kept) each, as the scheduler would cut them."""
    start, kept, shares = 0, 0, []
    while start < length:
        most = min(budget, length - start)
        least = None if start + most == length else kept + 4
        share = cut_share(start, most, size, wanted, least)
        start, kept = start + share[0], share[1] or kept
        shares.append(share)
    return shares


@settings(max_examples=60)
@given(
    length=st.integers(1, 200), budget=st.integers(1, 60), size=st.integers(1, 16),
    wanted=st.lists(st.integers(1, 30), unique=True, max_size=3).map(sorted),
)  # fmt: skip
def test_a_prompt_passes_every_place_that_is_wanted(
    length: int, budget: int, size: int, wanted: list[int]
) -> None:
    shares = shares_of(length, budget, size, wanted)
    assert sum(tokens for tokens, _ in shares) == length
    kept = [depth for _, depth in shares if depth]
    assert kept == sorted(set(kept))
    assert {depth for depth in wanted if depth * size <= length} <= set(kept)


def test_slots_are_neither_lost_nor_given_twice() -> None:
    """Thousands of calls, and each slot is free, pending or filed."""
    rng, kept = random.Random(4), Checkpoints(10, 7)
    requests = [Request(f"r{i}", [1], SamplingParams(), max_tokens=9) for i in range(5)]
    for _ in range(4000):
        request, block = rng.choice(requests), rng.randrange(40)
        deed = rng.randrange(6)
        request.status = rng.choice([RequestStatus.RUNNING] * 3 + [RequestStatus.FINISHED])
        if deed < 3 and block not in kept.filed:
            kept.save(request, block, 1)
        elif deed == 3:
            kept.file([block], [rng.choice([block, block + 40])])
        elif deed == 4:
            kept.sweep()
        else:
            kept.evicted([block, block + 40])
        slots = [*kept._free, *kept._filed.values(), *(one.slot for one in kept._pending.values())]
        assert sorted(slots) == list(range(10, 17))
