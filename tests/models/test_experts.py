"""A step's rows grouped by expert give what each row gives alone."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts, GptOssTopKRouter

from yaie.models.experts import Choice, Groups, PlainExperts, best_of, mixed
from yaie.models.gpt_oss import clamped_swiglu

HIDDEN, INNER = 12, 5
Expert = Callable[[int, Tensor], Tensor]


def each_row_alone(x: Tensor, choice: Choice, expert: Expert) -> Tensor:
    """The naive sibling of `mixed`: one product for each row and expert. expert: from its number and a
    row [hidden] to its result."""
    rows = []
    for row, experts, shares in zip(x, choice.experts.tolist(), choice.shares, strict=True):
        results = [expert(one, row) * share for one, share in zip(experts, shares, strict=True)]
        rows.append(torch.stack(results).sum(0))
    return torch.stack(rows)


def random_experts(count: int) -> tuple[PlainExperts, PlainExperts, Expert]:
    """(products in, products out, the same for one row at a time)."""
    tensors = [torch.randn(count, *shape) for shape in ((HIDDEN, INNER), (INNER,))]
    tensors += [torch.randn(count, *shape) for shape in ((INNER, HIDDEN), (HIDDEN,))]
    up, up_bias, down, down_bias = tensors

    def expert(one: int, row: Tensor) -> Tensor:
        return torch.tanh(row @ up[one] + up_bias[one]) @ down[one] + down_bias[one]

    return PlainExperts(up, up_bias), PlainExperts(down, down_bias), expert


def assert_alike(x: Tensor, choice: Choice, count: int) -> None:
    up, down, expert = random_experts(count)

    def compute(rows: Tensor, groups: Groups) -> Tensor:
        return down(torch.tanh(up(rows, groups)), groups)

    with torch.inference_mode():
        got = mixed(x, choice, count, compute)
        torch.testing.assert_close(got, each_row_alone(x, choice, expert), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_grouped_rows_give_what_each_gives_alone(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    count, rows = rng.choice((1, 2, 3, 8, 40)), rng.choice((1, 2, 7, 33))
    chosen = rng.randint(1, min(count, 5))
    assert_alike(torch.randn(rows, HIDDEN), best_of(torch.randn(rows, count), chosen), count)


@pytest.mark.parametrize("expert", [0, 3, 7])
def test_all_rows_at_one_expert_and_none_at_the_others(expert: int) -> None:
    torch.manual_seed(expert)
    choice = Choice(torch.full((9, 1), expert), torch.rand(9, 1))
    assert_alike(torch.randn(9, HIDDEN), choice, 8)


def test_each_expert_is_called_once_with_the_rows_that_chose_it() -> None:
    choice = Choice(torch.tensor([[2, 0], [2, 5], [0, 2]]), torch.ones(3, 2))
    seen: list[tuple[int, list[float]]] = []

    def compute(rows: Tensor, groups: Groups) -> Tensor:
        seen.extend((one, rows[span, 0].tolist()) for one, span in groups.spans())
        return rows

    mixed(torch.tensor([[1.0], [2.0], [3.0]]), choice, 6, compute)
    assert seen == [(0, [1.0, 3.0]), (2, [1.0, 2.0, 3.0]), (5, [2.0])]


def test_router_gate_and_clamp_are_those_of_transformers() -> None:
    """With numbers far beyond the limit on both sides."""
    config = GptOssConfig(
        hidden_size=HIDDEN, intermediate_size=INNER, num_local_experts=6, num_experts_per_tok=4
    )
    router, experts = GptOssTopKRouter(config), GptOssExperts(config)
    torch.manual_seed(0)
    with torch.inference_mode():
        router.weight.normal_()
        router.bias.normal_()
        x = torch.randn(50, HIDDEN)
        scores, shares, chosen = router(x)
        ours = best_of(scores, 4)
        assert torch.equal(ours.experts, chosen)
        assert torch.equal(ours.shares, shares)
        wide = torch.randn(50, 2 * INNER) * 10
        assert wide.abs().max() > 14
        got = clamped_swiglu(wide, 1.702, 7.0)
        torch.testing.assert_close(got, experts._apply_gate(wide))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("inner", [64, 60])
def test_grouped_products_on_a_gpu(dtype: torch.dtype, inner: int) -> None:
    """By PyTorch's grouped product; expert by expert where rows are not aligned (60 in bfloat16)."""
    torch.manual_seed(0)
    weight, bias = torch.randn(8, 128, inner), torch.randn(8, inner)
    choice = best_of(torch.randn(70, 8), 3)
    x = torch.randn(70, 128)
    right, ours = (
        PlainExperts(weight, bias),
        PlainExperts(weight.to("cuda", dtype), bias.to("cuda", dtype)),
    )
    with torch.inference_mode():
        wanted = mixed(x, choice, 8, right)
        on_gpu = Choice(choice.experts.cuda(), choice.shares.to("cuda", dtype))
        got = mixed(x.to("cuda", dtype), on_gpu, 8, ours).float().cpu()
    limit = 1e-2 if dtype == torch.bfloat16 else 1e-3
    assert (got - wanted).norm() <= limit * wanted.norm()
