"""Task 22.3: many tokens of the delta rule at once."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_equal, note, task
from grader.kit.storage import expect_calls_apart
from grader.suites.state_cache import chunk_kinds
from grader.suites.state_cache.operations import expect_as_many, expect_no_reads
from grader.suites.state_cache.rules import (
    BF16,
    EXACT,
    F32,
    F64,
    NAMES,
    at,
    delta,
    delta_tokens,
    drawn,
    expect_pair,
    expect_values,
    keeping,
    states_of,
)

LEFT = (
    "Of what token s writes, the decays of the tokens after it are left, s + 1 to t: not its own, and "
    "those up to the reading token with its own."
)
DIGITS = (
    "Each entry is the exponential of the sum between two tokens. The difference of two long sums has "
    "lost the digits of the weak decays after a strong one, and exp(-sum) overflows."
)
NOTHING = (
    "exp(-300) is a number like others, and leaves of 1e60 nothing to be seen. A log_decay that is "
    "clamped leaves a part of it."
)
SYSTEM = (
    "u_t = beta_t (v_t - what is left of S^T k_t - sum over s < t of left_ts (k_t . k_s) u_s): u is on "
    "both sides, so this is a triangular system whose diagonal is 1."
)
BORDER = (
    "The state after a chunk is what the decays of all its tokens leave of S, and of each k_s u_s^T "
    "what those after s leave, once. The next chunk begins with its own first decay."
)
READ = "A token reads what it has written itself, with nothing decayed of it: left_tt is 1."
FILL = (
    "Tokens of zeros stand for none: they write nothing, and a log_decay of 0 leaves all as it is."
)
SAME = (
    "Where keys repeat and nothing decays, powers of the system grow beyond 10^17 though its inverse "
    "does not. Solve it from the first token on (solve_triangular), or join inverses of small blocks."
)
GROUP = "Value head h goes with key head h // group: the heads of one group are neighbours."
LOOP = "A chunk is a handful of products of matrices: it is there to avoid a loop over its tokens."
WIDE = "q, k and v may have 16 bits. They are widened to the dtype of states before anything else."
GIVEN = "Only the given states may be overwritten."
FAR = 1e-7
"""Of numbers that come out of a system of 64 tokens, in float64."""
SINGLE = 2e-4
"""The same in float32."""


def run(part: ModuleType, tokens: Mapping[str, Tensor], states: Tensor) -> tuple[Any, Any]:
    note(f"delta_chunk(k {list(tokens['k'].shape)}, v {list(tokens['v'].shape)}, ...)")
    with keeping(tokens, GIVEN):
        got = part.delta_chunk(*(tokens[name] for name in NAMES), states.clone())
    return expect_pair(got, "delta_chunk")


def check(got: tuple[Any, Any], tokens: Mapping[str, Tensor], states: Tensor, why: str,
          tolerance: float = FAR, told: str = "") -> None:  # fmt: skip
    right, after = delta(tokens, states)
    how: dict[str, Any] = {"tolerance": tolerance, "dtype": states.dtype}
    of_out = chunk_kinds.outputs(tokens, states)
    words = SYSTEM if why == BORDER else why
    expect_values(got[0], right, f"out{told}", **how, why=words, kinds=of_out)
    how["why"] = "" if SYSTEM in why else why
    last = torch.zeros_like(states).double()
    twice = tokens["log_decay"].double().sum(1).exp()[..., None, None]
    kinds = {
        f"These are the states before the chunk. {BORDER}": lambda: states.double(),
        f"The decay of the whole chunk was applied once more. {BORDER}": lambda: after * twice,
        "The state before the chunk has decayed twice in it.": lambda: (
            after + states.double() * (twice - 1) * twice
        ),
        "Nothing of the state before is in it, and keys find nothing of it.": lambda: delta(
            tokens, last
        )[1],
        f"Nothing of the state before is in it. {BORDER}": lambda: after - states.double() * twice,
        f"The state before the chunk has not decayed in it. {BORDER}": lambda: (
            after + states.double() * (1 - twice)
        ),
        **chunk_kinds.after(tokens, states),
    }
    expect_values(got[1], after, f"the states after the chunk{told}", **how, kinds=kinds)


def exact_decays(log_decay: Tensor) -> Tensor:
    """[..., t, s], one by one."""
    length = log_decay.shape[-1]
    out = torch.zeros(*log_decay.shape, length, dtype=F64)
    for t in range(length):
        for s in range(t + 1):
            out[..., t, s] = log_decay[..., s + 1 : t + 1].double().sum(-1).exp()
    return out


def check_decays(part: ModuleType, log_decay: Tensor, why: str, tolerance: float) -> None:
    note(f"decays(log_decay {list(log_decay.shape)} {log_decay.dtype})")
    right = exact_decays(log_decay)
    before = log_decay.clone()
    got = part.decays(log_decay)
    shifted = torch.cat([torch.zeros_like(log_decay[..., :1]), log_decay[..., :-1]], -1)
    kinds = {
        f"Indices are the other way round. {LEFT}": lambda: right.mT,
        f"The decay of the token that writes counts too. {LEFT}": lambda: (
            right * log_decay.double().exp()[..., None, :]
        ),
        f"The decay of the token that reads does not count. {LEFT}": lambda: exact_decays(shifted),
        f"What a token leaves of its own is missing. {READ}": lambda: right.tril(-1),
    }
    expect_values(got, right, "decays", tolerance=tolerance, why=why, kinds=kinds)
    expect_values(log_decay, before, "log_decay afterwards", why=GIVEN)


@task("22.3")
def test_what_is_left_by_hand(part: ModuleType) -> None:
    """Tokens that leave 1/2, 1/4 and 1/8 of all before them."""
    check_decays(part, torch.tensor([0.5, 0.25, 0.125], dtype=F64).log(), LEFT, EXACT)
    check_decays(part, -drawn(2, 3, 5, seed=1).abs(), LEFT, EXACT)


@task("22.3")
def test_weak_decays_behind_strong_ones_keep_their_digits(part: ModuleType) -> None:
    """In float32, 60 tokens of -10,000 and then four of -0.001; and none is infinite."""
    log_decay = torch.full((64,), -1e4)
    log_decay[60:] = -1e-3
    check_decays(part, log_decay, DIGITS, 1e-5)
    check_decays(part, torch.tensor([-0.3, -200.0, -0.5]), DIGITS, 1e-5)


@task("22.3")
def test_one_token_is_a_step(part: ModuleType) -> None:
    """A chunk of one token: it finds what has decayed, and reads what it wrote."""
    tokens = delta_tokens(3, 1, seed=2)
    states = states_of(tokens)
    check(run(part, tokens, states), tokens, states, f"{SYSTEM} {READ}")


@task("22.3")
def test_two_tokens_of_one_key(part: ModuleType) -> None:
    """The second finds what the first has written, and what is left of the state before."""
    tokens = delta_tokens(1, 2, heads=1, group=1, seed=3)
    tokens["k"][:, 1] = tokens["k"][:, 0]
    tokens["log_decay"] = torch.tensor([[[-0.5], [-0.25]]], dtype=F64)
    tokens["beta"] = torch.tensor([[[0.5], [0.75]]], dtype=F64)
    states = states_of(tokens)
    check(run(part, tokens, states), tokens, states, SYSTEM)
    check(run(part, tokens, 0 * states), tokens, 0 * states, SYSTEM, told=" from a state of zeros")


@task("22.3")
def test_a_chunk_goes_on_from_a_chunk(part: ModuleType) -> None:
    """Two chunks give what one of twice the length gives; nothing decays at the border."""
    tokens = delta_tokens(2, 12, seed=4)
    tokens["log_decay"] -= 0.2
    states = states_of(tokens)
    first, middle = run(part, at(tokens, slice(5)), states)
    check((first, middle), at(tokens, slice(5)), states, BORDER, told=" of the first five tokens")
    second, after = run(part, at(tokens, slice(5, None)), middle)
    check((torch.cat([first, second], 1), after), tokens, states, BORDER)


@task("22.3")
def test_tokens_of_zeros_leave_the_state(part: ModuleType) -> None:
    """A chunk that a sequence does not fill has zeros at its end."""
    tokens, states = delta_tokens(2, 5, seed=5), None
    states = states_of(tokens)
    filled = {
        name: torch.cat([one, torch.zeros_like(one[:, :3])], 1) for name, one in tokens.items()
    }
    out, after = run(part, filled, states)
    expect_equal(list(out.shape), [2, 8, 4, 6], "the shape of out")
    check((out[:, :5], after), tokens, states, FILL)


@task("22.3")
def test_repeated_keys_in_float32(part: ModuleType) -> None:
    """64 tokens with one key, no decay, and rates up to 2, as a prompt that repeats a token has them."""
    tokens = {name: one.float() for name, one in delta_tokens(2, 64, d_k=16, seed=6).items()}
    tokens["k"] = tokens["k"][:, :1].expand(2, 64, 2, 16)
    tokens["log_decay"] = torch.zeros_like(tokens["log_decay"])
    tokens["beta"] = torch.full_like(tokens["beta"], 2.0)
    tokens["beta"][0] = 1.0
    states = states_of(tokens, dtype=F32)
    check(run(part, tokens, states), tokens, states, SAME, 2e-3)


@task("22.3")
def test_strong_decays_in_float32(part: ModuleType) -> None:
    """Tokens of which some leave nothing: no number is NaN, and the others keep their digits."""
    tokens = {name: one.float() for name, one in delta_tokens(2, 32, seed=7).items()}
    tokens["log_decay"][:, ::5] = -300.0
    tokens["log_decay"][:, 11] = -1e4
    states = states_of(tokens, dtype=F32)
    check(run(part, tokens, states), tokens, states, DIGITS, SINGLE)
    # In float64 a large state, and a large value, of which exp(-300) leaves nothing.
    for name in ("the state before", "a value"):
        tokens = delta_tokens(1, 6, seed=7)
        tokens["log_decay"] = torch.full_like(tokens["log_decay"], -0.1)
        states = states_of(tokens)
        if name == "a value":
            tokens["v"][:, 0] *= 1e60
            tokens["beta"][:, 0] = 1.0
            tokens["log_decay"][:, 1] = -300.0
        else:
            states *= 1e60
            tokens["log_decay"][:, 0] = -300.0
        note(f"# {name} is about 1e60, and the next log_decay is -300")
        check(run(part, tokens, states), tokens, states, NOTHING, told=f", {name} about 1e60")


@task("22.3")
def test_heads_of_values_share_a_key(part: ModuleType) -> None:
    """Two heads of keys and six of values, q, k and v in bfloat16 and states in float32."""
    tokens = delta_tokens(2, 9, heads=2, group=3, seed=8)
    states = states_of(tokens)
    check(run(part, tokens, states), tokens, states, GROUP)
    narrow = {
        name: one.to(BF16 if name in ("q", "k", "v") else F32) for name, one in tokens.items()
    }
    check(run(part, narrow, states.float()), narrow, states.float(), WIDE, SINGLE)


@task("22.3")
def test_what_is_given_stays(part: ModuleType) -> None:
    """q, k, v, log_decay and beta are as they were; so is what an earlier call returned."""
    tokens = {name: one.float() for name, one in delta_tokens(2, 4, group=1, seed=9).items()}
    states = states_of(tokens, dtype=F32)
    got = run(part, tokens, states)
    held = [one.clone() for one in got]
    others = {name: one.float() for name, one in delta_tokens(2, 4, group=1, seed=40).items()}
    run(part, others, states)
    for name, one, old in zip(("out", "states"), got, held, strict=True):
        expect_values(one, old, f"{name} of the first call, after a second", why=GIVEN)

    def call(seed: int) -> Any:
        return run(part, delta_tokens(2, 4, seed=seed), drawn(2, 4, 8, 6, seed=seed))

    expect_calls_apart(
        {"delta_chunk": call, "decays": lambda seed: part.decays(-drawn(2, 5, seed=seed).abs())}
    )


@task("22.3")
def test_no_loop_over_tokens(part: ModuleType) -> None:
    """The number of operations does not depend on how many tokens, sequences or heads there are."""

    def of(n: int, length: int, heads: int = 2) -> Any:
        tokens = delta_tokens(n, length, heads=heads)
        states = states_of(tokens)
        return lambda: part.delta_chunk(*(tokens[name] for name in NAMES), states.clone())

    expect_no_reads(of(2, 8), "delta_chunk")
    expect_as_many(part, "delta_chunk", of(2, 8), of(2, 32), "8 tokens and with 32", LOOP)
    expect_as_many(part, "delta_chunk", of(2, 8), of(9, 8), "2 sequences and with 9", LOOP)
    expect_as_many(part, "delta_chunk", of(2, 8), of(2, 8, 7), "2 heads of keys and with 7", LOOP)
    few, many = torch.zeros(2, 8, dtype=F64), torch.zeros(2, 32, dtype=F64)
    calls = (lambda: part.decays(few)), (lambda: part.decays(many))
    expect_as_many(part, "decays", *calls, "8 tokens and with 32", LOOP)


@task("22.3")
@examples(30)
@given(
    st.integers(1, 3), st.sampled_from([1, 2, 3, 7, 16, 64]), st.integers(1, 2), st.integers(1, 3),
    st.integers(1, 9), st.integers(1, 9), st.integers(0, 999),
)  # fmt: skip
def test_any_chunk(
    part: ModuleType, n: int, length: int, heads: int, group: int, d_k: int, d_v: int, seed: int
) -> None:
    """A chunk of any shape gives what its tokens give one by one."""
    tokens = delta_tokens(n, length, heads, group, d_k, d_v, seed=seed)
    states = states_of(tokens, seed=seed)
    got = run(part, tokens, states)
    expect(isinstance(got[0], Tensor), "out is no tensor")
    expect_equal(list(got[0].shape), [n, length, heads * group, d_v], "the shape of out")
    # Rates up to 1.7 let rounding grow with a chunk's length.
    check(got, tokens, states, SYSTEM, 1e-6)
