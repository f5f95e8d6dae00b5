"""Tasks 2.6 and 2.7: what queries make of the keys that they see."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, start_script, task
from grader.suites.transformer_ops.exact import (
    INF,
    WIDE,
    attend,
    expect_accurate,
    expect_attended,
    expect_attention,
    expect_near,
    masks,
    random,
)
from yaie.core.batch import AttentionSpec

F32 = torch.float32


def heads_with_values(values: list[float], tk: int) -> Tensor:
    """v [1, tk, heads, 2], where everything in head h is values[h]."""
    return torch.tensor(values)[None, None, :, None].expand(1, tk, -1, 2).clone()


def expect_heads(
    part: ModuleType,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spec: AttentionSpec,
    values: list[float],
    what: str,
    why: str = "",
) -> None:
    """The only query gets these values in its heads, from `heads_with_values`."""
    got = attend(part, q, k, v, spec, [k.shape[1]])
    expect_attended(got, q, k, v, spec, [k.shape[1]], what=what, why=why)
    right = torch.tensor(values)[None, None, :, None].expand(1, 1, -1, 2)
    expect_near(got, right, F32, what, why=why)


@task("2.6")
def test_neighbouring_heads_share_a_key_head(part: ModuleType) -> None:
    """Head h reads key and value head h // group: with 6 heads on 2, heads 0 to 2 read the first."""
    q, k, v = torch.ones(1, 1, 6, 2), torch.zeros(1, 3, 2, 2), heads_with_values([1.0, 2.0], 3)
    right, what = (
        [1.0, 1.0, 1.0, 2.0, 2.0, 2.0],
        "what 6 heads get from value heads that hold 1 and 2",
    )
    expect_heads(part, q, k, v, AttentionSpec(1.0), right, what)


@task("2.6")
def test_the_scale_is_that_of_the_spec(part: ModuleType) -> None:
    """Scores are multiplied by spec.scale, whatever the head's size is."""
    q, k = torch.ones(1, 1, 1, 4), torch.zeros(1, 2, 1, 4)
    k[0, 1] = 1.0
    v = torch.tensor([0.0, 1.0])[None, :, None, None].expand(1, 2, 1, 4).clone()
    for scale in (0.25, 1.0):
        what = f"attention to scores 0 and 4 at scale {scale}"
        expect_attention(part, q, k, v, AttentionSpec(scale), [2], what=what)


@task("2.6")
def test_hidden_keys_have_no_say(part: ModuleType) -> None:
    """Whatever finite numbers padding holds, nothing of it reaches the output."""
    q, k, v = random(2, 2, 4, 4), random(2, 6, 2, 4, seed=1), random(2, 6, 2, 4, seed=2)
    spec, what = AttentionSpec(0.5), "attention, in which row 1 has 3 keys of padding"
    expect_attention(part, q, k, v, spec, [6, 3], what=what)
    k[1, 3:], v[1, 3:] = 1e4, -1e4
    what = "attention once the padding holds large numbers"
    expect_attention(part, q, k, v, spec, [6, 3], what=what)


@task("2.6")
def test_every_row_has_its_mask(part: ModuleType) -> None:
    """Row i of the batch is masked by row i of the mask, in all of its heads."""
    q, k, v = random(2, 2, 2, 4), random(2, 5, 2, 4, seed=1), random(2, 5, 2, 4, seed=2)
    what = "2 rows of 2 heads, lengths 5 and 2"
    expect_attention(part, q, k, v, AttentionSpec(0.5), [5, 2], what=what)


@task("2.6")
def test_attention_accumulates_in_float32(part: ModuleType) -> None:
    """In bfloat16, scores and softmax are computed in float32, and the result is rounded."""
    why = f"A score of 20 rounded to bfloat16 is off by up to 0.06, its weight by 6%. {WIDE}"
    expect_accurate(part, AttentionSpec(32**-0.5), why=why)


@st.composite
def attentions(
    draw: st.DrawFn, extras: bool
) -> tuple[Tensor, Tensor, Tensor, AttentionSpec, list[int]]:
    """(q, k, v, spec, kv_lens). extras: with a softcap, with sinks, or with both."""
    kv_heads, group = draw(st.sampled_from([(1, 1), (2, 1), (2, 2), (1, 3), (2, 3)]))
    kv_lens, tq, tk, window = draw(masks())
    seed, heads = draw(st.integers(0, 99)), kv_heads * group
    softcap, sinks = None, None
    if extras:
        which = draw(st.integers(0, 2))
        softcap = draw(st.sampled_from([0.5, 2.0])) if which != 1 else None
        sinks = random(heads, seed=seed + 3) if which != 0 else None
    spec = AttentionSpec(draw(st.sampled_from([0.25, 0.5])), window, softcap, sinks)
    q = random(len(kv_lens), tq, heads, 4, seed=seed)
    k, v = (random(len(kv_lens), tk, kv_heads, 4, seed=seed + i) for i in (1, 2))
    return q, k, v, spec, kv_lens


def described(q: Tensor, k: Tensor, spec: AttentionSpec, kv_lens: list[int]) -> str:
    given = [f"kv_lens {kv_lens}", f"scale {spec.scale}"]
    given += [f"{n} {getattr(spec, n)}" for n in ("window", "softcap") if getattr(spec, n)]
    given += ["sinks"] * (spec.sinks is not None)
    return f"attention of {q.shape[2]} heads on {k.shape[2]} with {', '.join(given)}"


@task("2.6")
@examples(80)
@given(attentions(extras=False))
def test_any_attention(
    part: ModuleType, case: tuple[Tensor, Tensor, Tensor, AttentionSpec, list[int]]
) -> None:
    """Any attention is its definition: one sequence, one head, one query at a time, in float64."""
    q, k, _, spec, kv_lens = case
    expect_attention(part, *case, what=described(q, k, spec, kv_lens))


@task("2.7")
def test_a_sink_takes_its_share(part: ModuleType) -> None:
    """A sink joins the softmax of its head as a key without a value."""
    q, k, v = torch.zeros(1, 1, 2, 2), torch.zeros(1, 3, 2, 2), heads_with_values([4.0, 4.0], 3)
    sinks = torch.tensor([0.0, -INF])
    why = (
        "Three keys of score 0 and a sink of 0 share the weight: 3/4 of the value 4 is left. A sink "
        "of -inf has no share."
    )
    what = "two heads with sinks 0 and -inf, over values of 4"
    expect_heads(part, q, k, v, AttentionSpec(1.0, sinks=sinks), [3.0, 4.0], what, why)


@task("2.7")
def test_sinks_belong_to_query_heads(part: ModuleType) -> None:
    """There is a sink for each query head, also where heads share keys."""
    q, k, v = torch.zeros(1, 1, 4, 2), torch.zeros(1, 1, 2, 2), heads_with_values([6.0, 12.0], 1)
    sinks = torch.tensor([1.0, 2.0, 5.0, 0.5]).log()
    why = (
        "Against one key of weight 1, sinks of weight 1, 2, 5 and 0.5 leave 1/2, 1/3, 1/6 and 2/3."
    )
    what, right = "4 heads on values 6 and 12, with a sink each", [3.0, 2.0, 2.0, 8.0]
    expect_heads(part, q, k, v, AttentionSpec(1.0, sinks=sinks), right, what, why)


def expect_capped(
    part: ModuleType, spec: AttentionSpec, weight: float, what: str, why: str
) -> None:
    """The weight of the second of two keys with scores 0 and 10, times scale."""
    q, k, v = torch.ones(1, 1, 1, 2), torch.zeros(1, 2, 1, 2), torch.zeros(1, 2, 1, 2)
    k[0, 1], v[0, 1] = 5.0, 1.0
    start_script()
    expect_heads(part, q, k, v, spec, [weight], what, why)


@task("2.7")
def test_a_softcap_bounds_the_scores(part: ModuleType) -> None:
    """With a softcap scores become softcap * tanh(score / softcap), after the scale."""
    why = "2 * tanh(10 / 2) is nearly 2, so the keys weigh 1 to e^2: 0.881."
    what = "the weight of score 10 beside score 0, at softcap 2"
    expect_capped(part, AttentionSpec(1.0, softcap=2.0), 0.8807780, what, why)
    why = "The scaled score is 1: 2 * tanh(1 / 2) is 0.924, so 0.716."
    what = "the weight of score 10 beside score 0, at scale 0.1 and softcap 2"
    expect_capped(part, AttentionSpec(0.1, softcap=2.0), 0.7159041, what, why)


@task("2.7")
def test_a_sink_is_not_capped(part: ModuleType) -> None:
    """The softcap is for scores: a sink joins them afterwards, as it is."""
    why = "Scores 0 and 0.5 and a sink of 3: e^0.5 / (1 + e^0.5 + e^3) is 0.0725."
    what = "the weight of the second key, at softcap 0.5 with a sink of 3"
    spec = AttentionSpec(1.0, softcap=0.5, sinks=torch.tensor([3.0]))
    expect_capped(part, spec, 0.0725214, what, why)


@task("2.7")
def test_the_mask_comes_after_the_softcap(part: ModuleType) -> None:
    """What the mask hides stays hidden under a softcap."""
    q, k, v = torch.zeros(1, 1, 1, 2), torch.zeros(1, 4, 1, 2), torch.ones(1, 4, 1, 2)
    v[0, 2:] = 1e4
    what = "attention over 2 real keys and 2 of padding"
    expect_attention(part, q, k, v, AttentionSpec(1.0, softcap=2.0), [2], what=what)


@task("2.7")
def test_softcap_and_sinks_in_float32(part: ModuleType) -> None:
    """With a softcap or sinks, too, the math is in float32 and the result in the input's dtype."""
    why = f"A score of 20 rounded to bfloat16 is off by up to 0.06, its weight by 6%. {WIDE}"
    expect_accurate(part, AttentionSpec(32**-0.5, softcap=20.0), why=why)
    sinks = torch.tensor([0.0, 8.0, -2.0, 5.0]).bfloat16()
    expect_accurate(part, AttentionSpec(32**-0.5, sinks=sinks), why=why)


@task("2.7")
@examples(80)
@given(attentions(extras=True))
def test_any_attention_with_softcap_and_sinks(
    part: ModuleType, case: tuple[Tensor, Tensor, Tensor, AttentionSpec, list[int]]
) -> None:
    """Any attention with a softcap, sinks or both is its definition in float64."""
    q, k, _, spec, kv_lens = case
    expect_attention(part, *case, what=described(q, k, spec, kv_lens))
