"""The rules are those of published models: transformers' own functions give the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.bamba import modeling_bamba as bamba
from transformers.models.lfm2 import modeling_lfm2 as lfm2
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

from solutions import state_cache
from yaie.backends.states.torch import TorchStateOps
from yaie.core.contracts.states import StateBatch

SLOT, SLOTS = 2, 4
OPS = TorchStateOps(state_cache)
LENGTHS = (1, 70, 130)


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def one_sequence(length: int, *, is_fresh: bool = False) -> StateBatch:
    starts = torch.tensor([0, length], dtype=torch.int32)
    return StateBatch([length], starts, torch.tensor([SLOT]), torch.tensor([is_fresh]))


def near(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    "theirs", [qwen.torch_chunk_gated_delta_rule, qwen.torch_recurrent_gated_delta_rule]
)
def test_the_gated_delta_rule_of_qwen(theirs: Callable[..., Any], length: int) -> None:
    """Which scales queries itself."""
    q, k, v = some(length, 2, 16), some(length, 2, 16) / 4, some(length, 6, 24)
    log_decay, beta = -some(length, 6).exp(), some(length, 6).sigmoid()
    pool = some(SLOTS, 6, 16, 24)
    before = pool[SLOT].clone()
    out = OPS.gated_delta_rule(q * 16**-0.5, k, v, log_decay, beta, pool, one_sequence(length))
    rows = [one[None] for one in (q, k, v, log_decay, beta)]
    expected, state = theirs(*rows, initial_state=before[None], output_final_state=True)
    near(out, expected[0])
    near(pool[SLOT], state[0])


@pytest.mark.parametrize("length", LENGTHS)
def test_the_selective_scan_of_mamba_2(length: int) -> None:
    x, dt, b, c = (
        some(length, 4, 8),
        F.softplus(some(length, 4)),
        some(length, 2, 16),
        some(length, 2, 16),
    )
    a, d, pool = -some(4).exp(), some(4), some(SLOTS, 4, 8, 16)
    before = pool[SLOT].clone()
    out = OPS.selective_scan(x, dt, a, b, c, d, pool, one_sequence(length))
    rows = [one[None] for one in (b, c)]
    expected, state = bamba.mamba2_chunk_scan(
        x[None], dt[None], a, *rows, chunk_size=32, D=d, initial_states=before[None],
        return_final_states=True,
    )  # fmt: skip
    near(out, expected[0])
    near(pool[SLOT], state[0])
    if length == 1:
        ones = (a[:, None, None].expand(4, 8, 16), b, c, d[:, None].expand(4, 8))
        wide = dt[..., None].expand(1, 4, 8)
        near(out, bamba.mamba2_selective_state_update(before[None], x, wide, *ones))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("activation", [None, "silu"])
def test_the_short_convolution_of_lfm2(length: int, activation: str | None) -> None:
    x, weight, bias, pool = some(length, 12), some(12, 3), some(12), some(SLOTS, 12, 2)
    before, silu = pool[SLOT, None].clone(), activation == "silu"
    columns = x.T[None].contiguous()
    out = OPS.short_conv(x, weight, bias, pool, one_sequence(length, is_fresh=True), silu)
    near(out, lfm2.causal_conv1d_fn(columns, weight, bias, activation)[0].T)
    pool[SLOT] = before[0]
    out = OPS.short_conv(x, weight, bias, pool, one_sequence(length), silu)
    near(out, lfm2.causal_conv1d_update(columns, before, weight, bias, activation)[0].T)
    near(pool[SLOT], before[0])
