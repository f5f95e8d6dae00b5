"""Task 22.2: one token of each sequence through the delta rule."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect_equal, note, task
from grader.kit.kernels import padded_apart
from grader.kit.storage import expect_calls_apart
from grader.suites.state_cache.operations import expect_as_many, expect_no_reads
from grader.suites.state_cache.rules import (
    BF16,
    EXACT,
    F32,
    F64,
    NAMES,
    ROUNDED,
    at,
    delta,
    delta_tokens,
    drawn,
    expect_pair,
    expect_values,
    keeping,
    states_of,
)

GROUP = "Value head h goes with key head h // group: the heads of one group are neighbours."
WIDE = "q, k and v may have 16 bits. They are widened to the dtype of states before anything else."
LEFT = "Only the given states may be overwritten."
LOOP = "All sequences and heads are one batch of small products: no loop over them is needed."
FORGET = (
    "exp(log_decay) may be 0, of a log_decay of -1000: then nothing is left, and nothing is NaN."
)


def run(part: ModuleType, tokens: Mapping[str, Tensor], states: Tensor) -> tuple[Any, Any]:
    """One token of each sequence; the states are a copy."""
    note(f"delta_step(k {list(tokens['k'].shape)}, v {list(tokens['v'].shape)}, ...)")
    with keeping(tokens, LEFT):
        got = part.delta_step(*(tokens[name] for name in NAMES), states.clone())
    return expect_pair(got, "delta_step")


def check(got: tuple[Any, Any], tokens: Mapping[str, Tensor], states: Tensor, why: str,
          tolerance: float = EXACT) -> None:  # fmt: skip
    """tokens: of one token [n, ...]."""
    whole = {name: one[:, None] for name, one in tokens.items()}
    right, after = delta(whole, states)
    kinds = _kinds(tokens, states)
    # First the state: what is read is wrong with it.
    expect_values(
        got[1], after, "the states after the token", tolerance=tolerance, dtype=states.dtype, why=why,
        kinds={told: _second(mistake) for told, mistake in kinds.items()},
    )  # fmt: skip
    reads = {told: _first(mistake) for told, mistake in kinds.items()}
    expect_values(
        got[0], right[:, 0], "out", tolerance=tolerance, dtype=states.dtype, why=why, kinds=reads
    )


def _first(mistake: Any) -> Any:
    return lambda: mistake()[0]


def _second(mistake: Any) -> Any:
    return lambda: mistake()[1]


def _kinds(tokens: Mapping[str, Tensor], states: Tensor) -> dict[str, Any]:
    """What mistakes would give, (out, states) each."""
    group = tokens["v"].shape[1] // tokens["k"].shape[1]
    q, k, v, log_decay, beta = (tokens[name].double() for name in NAMES)
    q, k = (one.repeat_interleave(group, 1) for one in (q, k))
    before, decay = states.double(), log_decay.exp()[..., None, None]

    def rule(found: Tensor, written: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        after = kept + torch.einsum("nhk,nhv->nhkv", k, beta[..., None] * (written - found))
        return torch.einsum("nhkv,nhk->nhv", after, q), after

    def found_in(state: Tensor) -> Tensor:
        return torch.einsum("nhkv,nhk->nhv", state, k)

    def late() -> tuple[Tensor, Tensor]:
        _, after = rule(found_in(before), v, before)
        return torch.einsum("nhkv,nhk->nhv", after * decay, q), after * decay

    def early() -> tuple[Tensor, Tensor]:
        _, after = rule(found_in(before * decay), v, before * decay)
        return torch.einsum("nhkv,nhk->nhv", before * decay, q), after

    def rate_of_value() -> tuple[Tensor, Tensor]:
        state = before * decay
        after = state + torch.einsum("nhk,nhv->nhkv", k, beta[..., None] * v - found_in(state))
        return torch.einsum("nhkv,nhk->nhv", after, q), after

    far = {name: one.clone() for name, one in tokens.items()}
    heads = tokens["k"].shape[1]
    order = torch.arange(heads * group) % heads
    if group > 1 and heads > 1:
        far["q"], far["k"] = (tokens[name][:, order] for name in "qk")
    return {
        "The key was divided by its length: the rule takes it as it is.": lambda: _of_one(
            {**tokens, "k": torch.nn.functional.normalize(tokens["k"].double(), dim=-1)}, states
        ),
        f"Value head h takes key head h % {heads} here. {GROUP}": lambda: _of_one(far, states),
        "The state decays after the write here: it decays first.": late,
        "What the key finds was read before the state has decayed.": lambda: rule(
            found_in(before), v, before * decay
        ),
        "The query read the state before the key wrote.": early,
        "beta multiplies the difference, not the value alone.": rate_of_value,
        "The value was added to what the key finds already: the rule writes the difference.": (
            lambda: rule(torch.zeros_like(v), v, before * decay)
        ),
        "The state was multiplied by log_decay: its factor is exp(log_decay).": lambda: rule(
            found_in(before * log_decay[..., None, None]), v, before * log_decay[..., None, None]
        ),
        "The state does not decay here.": lambda: rule(found_in(before), v, before),
    }


def _of_one(tokens: Mapping[str, Tensor], states: Tensor) -> tuple[Tensor, Tensor]:
    """The rule itself, of one token [n, ...]."""
    out, after = delta(at_all(tokens), states)
    return out[:, 0], after


@task("22.2")
def test_a_token_by_hand(part: ModuleType) -> None:
    """A state (1, 2) halves; a key finds 0.5, wants 10 at a rate of 0.25, and leaves (2.875, 1)."""
    tokens = {
        "q": torch.tensor([[[1.0, 1.0]]]),
        "k": torch.tensor([[[1.0, 0.0]]]),
        "v": torch.tensor([[[10.0]]]),
        "log_decay": torch.tensor([[0.5]]).log(),
        "beta": torch.tensor([[0.25]]),
    }
    states = torch.tensor([[[[1.0], [2.0]]]])
    check(run(part, tokens, states), tokens, states, "", 1e-6)


@task("22.2")
def test_a_key_writes_over_what_it_finds(part: ModuleType) -> None:
    """With a rate of 1 a key of length 1 finds its value afterwards, whatever was there."""
    tokens = at(delta_tokens(3, 1, seed=4), 0)
    tokens["beta"] = torch.ones_like(tokens["beta"])
    tokens["q"] = tokens["k"]
    out, _ = run(part, tokens, states_of(at_all(tokens)))
    expect_values(out, tokens["v"], "out for the key itself", why="")


def at_all(tokens: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """[n, 1, ...] from [n, ...]."""
    return {name: one[:, None] for name, one in tokens.items()}


@task("22.2")
def test_the_order_of_a_token(part: ModuleType) -> None:
    """Decay, read, write, read: with strong decays and rates every other order shows."""
    tokens = at(delta_tokens(2, 1, group=1, seed=5), 0)
    tokens["log_decay"] = torch.tensor([[-0.7, -1.1], [-0.2, -0.4]], dtype=F64)
    tokens["beta"] = torch.tensor([[0.6, 0.9], [1.3, 0.5]], dtype=F64)
    states = states_of(at_all(tokens))
    check(run(part, tokens, states), tokens, states, "")


@task("22.2")
def test_heads_of_values_share_a_key(part: ModuleType) -> None:
    """Two heads of keys and six of values: three neighbours go with each."""
    tokens = at(delta_tokens(2, 1, heads=2, group=3, seed=6), 0)
    states = states_of(at_all(tokens))
    check(run(part, tokens, states), tokens, states, GROUP)


@task("22.2")
def test_nothing_may_be_left(part: ModuleType) -> None:
    """A decay to nothing, and rates of 0, which write nothing."""
    tokens = at(delta_tokens(2, 1, seed=7), 0)
    tokens["log_decay"] = torch.full_like(tokens["log_decay"], -1000.0)
    tokens["beta"][1] = 0
    states = states_of(at_all(tokens))
    got = run(part, tokens, states)
    check(got, tokens, states, FORGET)
    expect_values(got[1][1], torch.zeros(4, 8, 6), "a state that nothing is left of", why=FORGET)


@task("22.2")
def test_all_is_computed_as_wide_as_the_states(part: ModuleType) -> None:
    """q, k and v in bfloat16, states in float32: out and states are float32, and nothing was rounded."""
    tokens = at(delta_tokens(3, 1, d_k=16, seed=8), 0)
    for name in NAMES:
        tokens[name] = tokens[name].to(BF16 if name in "qkv" else F32)
    states = states_of(at_all(tokens), dtype=F32)
    check(run(part, tokens, states), tokens, states, WIDE, ROUNDED)


@task("22.2")
def test_rows_and_heads_may_be_anywhere(part: ModuleType) -> None:
    """q, k and v are views of one product, with gaps between tokens and heads."""
    tokens = at(delta_tokens(3, 1, seed=10), 0)
    views = padded_apart(*(tokens[name] for name in NAMES))
    apart = dict(zip(NAMES, views, strict=True))
    states = states_of(at_all(tokens))
    check(run(part, apart, states), tokens, states, LEFT)


@task("22.2")
def test_what_is_given_stays(part: ModuleType) -> None:
    """q, k, v, log_decay and beta are as they were; so is what an earlier call returned."""
    tokens = at(delta_tokens(2, 1, group=1, seed=11), 0)
    states = states_of(at_all(tokens))
    out, after = run(part, tokens, states)
    held = out.clone(), after.clone()
    run(part, at(delta_tokens(2, 1, group=1, seed=30), 0), states)
    for name, one, old in zip(("out", "states"), (out, after), held, strict=True):
        expect_values(one, old, f"{name} of the first call, after a second", why=LEFT)
    check((out, after), tokens, states, LEFT)

    def call(seed: int) -> Any:
        return run(part, at(delta_tokens(2, 1, seed=seed), 0), drawn(2, 4, 8, 6, seed=seed))

    expect_calls_apart({"delta_step": call})


@task("22.2")
def test_no_loop_over_sequences_or_heads(part: ModuleType) -> None:
    """The number of operations depends on nothing, and the host waits for nothing."""

    def of(n: int, heads: int) -> Any:
        tokens = at(delta_tokens(n, 1, heads=heads), 0)
        states = states_of(at_all(tokens))
        return lambda: part.delta_step(*(tokens[name] for name in NAMES), states.clone())

    expect_no_reads(of(2, 2), "delta_step")
    expect_as_many(part, "delta_step", of(2, 2), of(19, 2), "2 sequences and with 19", LOOP)
    expect_as_many(part, "delta_step", of(2, 2), of(2, 9), "2 heads of keys and with 9", LOOP)


@task("22.2")
@examples(40)
@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9),
    st.integers(0, 999),
)  # fmt: skip
def test_any_token(
    part: ModuleType, n: int, heads: int, group: int, d_k: int, d_v: int, seed: int
) -> None:
    """Of any shape the rule is that of its three lines."""
    tokens = at(delta_tokens(n, 1, heads, group, d_k, d_v, seed=seed), 0)
    states = drawn(n, heads * group, d_k, d_v, seed=seed + 5)
    got = run(part, tokens, states)
    expect_equal(list(got[0].shape), [n, heads * group, d_v], "the shape of out")
    check(got, tokens, states, "")
