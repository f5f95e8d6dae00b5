"""Beyond small inputs of one kind: dtypes, dense memory, one object for many layers, many tokens."""

from collections.abc import Callable, Iterator
from itertools import count
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import Mismatch, expect, expect_equal, note, quietly, start_script, task
from grader.kit.memory import expect_keeps_nothing
from grader.suites.transformer_ops.exact import (
    WIDE,
    attend,
    exact_norm,
    exact_rope,
    exact_silu_mul,
    expect_attended,
    expect_attention,
    expect_near,
    expect_pair,
    expect_tensor,
    expect_unchanged,
    ops_of,
    random,
    rotary_tables,
    seen_by,
    with_reference_norm,
)
from grader.suites.transformer_ops.pieces import own_maxima
from grader.suites.transformer_ops.rounded import expect_rounded_once, rounded_rotations
from grader.suites.transformer_ops.test_norms import expect_norm
from grader.suites.transformer_ops.test_rope import expect_turned
from grader.suites.transformer_ops.test_the_long_run import full
from solutions.transformer_ops import TransformerOps
from solutions.transformer_ops.naive import naive_attention
from yaie.core.batch import AttentionSpec

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DTYPES = (F32, F16, BF16)
NAN = float("nan")
FAR = 40_000
"""More than 16 bits of an integer hold."""

ITS_OWN = "Each call has its own."
NAN_STAYS = (
    "NaN in comes out as NaN: by it the engine knows that a request went wrong, and fails that one. "
    "Made a number, it becomes a token."
)


def expect_kept(call: Callable[..., Any], **tensors: Tensor) -> None:
    """The call leaves the tensors that it is given as they are."""
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    call(**tensors)
    for name, x in tensors.items():
        told = f"The call wrote into {name} itself, a dense tensor of {x.dtype}."
        expect_unchanged(f"{told} The caller reads it again.", **{name: (x, before[name])})


def expect_nan_kept(got: Any, exact: Tensor, dtype: torch.dtype, what: str) -> None:
    """What is NaN by the definition is NaN, and nothing else."""
    expect_tensor(got, dtype, what)
    expect_equal(list(got.shape), list(exact.shape), f"the shape of {what}")
    lost, spread = exact.isnan() & ~got.isnan(), got.isnan() & ~exact.isnan()
    told = (
        f"{what}: of {int(exact.isnan().sum())} values that should be NaN {int(lost.sum())} are not"
    )
    expect(not bool(lost.any()), told, why=NAN_STAYS)
    rows = f"{what}: {int(spread.sum())} values are NaN that no NaN goes into"
    expect(not bool(spread.any()), rows, why="A NaN of one token must not reach another's.")


@task("2.1")
def test_rms_norm_leaves_dense_inputs(part: ModuleType) -> None:
    """rms_norm changes neither x nor the weight, in any dtype, be it one row or one for each head."""
    for dtype in DTYPES:
        for shape in ((1, 4), (2, 4), (2, 3, 4)):
            start_script()
            x, weight = random(*shape).to(dtype), random(4, seed=1).to(dtype)
            expect_kept(
                lambda x, weight: ops_of(part).rms_norm(x, weight, 1e-5), x=x, weight=weight
            )


@task("2.1")
def test_rms_norm_of_many_wide_rows(part: ModuleType) -> None:
    """Rows may be many and wide, and come out with all the digits of float32."""
    x, weight = full(1100, 300), full(300, seed=1)
    got = ops_of(part).rms_norm(x.clone(), weight.clone(), 1e-5)
    expect_norm(got, x, weight, 1e-5, "rms_norm of 1100 rows of 300 values in float32")


@task("2.1")
def test_rms_norm_of_many_layers(part: ModuleType) -> None:
    """One object norms for all layers, each with its own weight and eps."""
    ops, x = ops_of(part), random(2, 4)
    layers = [(random(4, seed=layer + 1), eps) for layer, eps in enumerate((1e-5, 1e-5, 0.5))]
    for layer, (weight, eps) in enumerate(layers):
        got = ops.rms_norm(x.clone(), weight, eps)
        before = {
            f"This is the norm with the weight of layer {old}. {ITS_OWN}": exact_norm(x, kept, eps)
            for old, (kept, _) in enumerate(layers[:layer])
        }
        earlier = exact_norm(x, weight, layers[0][1])
        before[f"This is the norm with the eps of layer 0. {ITS_OWN}"] = earlier
        expect_near(
            got, exact_norm(x, weight, eps), F32, f"rms_norm for layer {layer}, eps {eps:g}",
            gives=lambda before=before: before,  # type: ignore[misc]
        )  # fmt: skip


@task("2.1")
def test_rms_norm_keeps_nan(part: ModuleType) -> None:
    """A row with NaN comes out as NaN, and the other rows as they should."""
    x, weight = random(3, 4), random(4, seed=1)
    x[1, 2] = NAN
    got = ops_of(part).rms_norm(x.clone(), weight, 1e-5)
    expect_nan_kept(got, exact_norm(x, weight, 1e-5), F32, "rms_norm with NaN in row 1")


@task("2.2")
def test_fused_sums_keep_their_digits(part: ModuleType) -> None:
    """In float32 the sum and its norm are as exact as float32."""
    x, residual, weight = full(3, 8), full(3, 8, seed=1), full(8, seed=2)
    total = x.double() + residual.double()
    ops = with_reference_norm(part)
    pair = ops.fused_add_rms_norm(x.clone(), residual.clone(), weight, 1e-3)
    normed, whole = expect_pair(pair, "fused_add_rms_norm")
    expect_near(whole, total, F32, "the sum in float32")
    expect_near(normed, exact_norm(total, weight, 1e-3), F32, "the norm in float32")


@task("2.2")
def test_fused_of_zeros(part: ModuleType) -> None:
    """x or the residual may be zeros: the results are the sum, and its norm, all the same."""
    for name in ("x", "the residual"):
        start_script()
        x, residual, weight = random(2, 4), random(2, 4, seed=1), random(4, seed=2)
        (x if name == "x" else residual).zero_()
        total = x.double() + residual.double()
        ops = with_reference_norm(part)
        pair = ops.fused_add_rms_norm(x, residual, weight, 1e-3)
        normed, whole = expect_pair(pair, "fused_add_rms_norm")
        expect_near(whole, total, F32, f"the sum, where {name} is zeros")
        expect_near(
            normed, exact_norm(total, weight, 1e-3), F32, f"the norm, where {name} is zeros"
        )


@task("2.3")
def test_rope_leaves_dense_inputs(part: ModuleType) -> None:
    """rope changes none of its arguments, in any dtype."""
    for dtype in DTYPES:
        start_script()
        q, k = random(2, 2, 6).to(dtype), random(2, 1, 6, seed=1).to(dtype)
        cos, sin = rotary_tables(9, 2)
        places = torch.tensor([8, 2])
        expect_kept(ops_of(part).rope, q=q, k=k, positions=places, cos=cos, sin=sin)


@task("2.3")
def test_rope_rounds_once_in_float16(part: ModuleType) -> None:
    """In float16, too, the rotation is computed in float32 and rounded once."""
    q, tables = random(64, 4, 32).half(), rotary_tables(500, 16)
    places = torch.arange(64) * 7
    got = expect_pair(ops_of(part).rope(q.clone(), q.clone(), places, *tables), "rope")[0]
    expect_turned(got, q, places, tables, "q in float16")
    gives = rounded_rotations(q, *(table[places] for table in tables))
    expect_rounded_once(got, exact_rope(q, places, *tables), "q", WIDE, gives)


@task("2.3")
def test_positions_in_no_order(part: ModuleType) -> None:
    """Positions are those of many sequences: the first and the last say nothing of those between."""
    q, k = full(3, 2, 4), full(3, 1, 4, seed=1)
    for places in ([4, 9, 6], [7, 7, 7], [FAR - 1, 0, FAR - 300]):
        start_script()
        tables, positions = rotary_tables(FAR, 2), torch.tensor(places)
        note(f"positions, tables = torch.tensor({places}), rotary tables of {FAR} positions")
        note("ops.rope(q, k, positions, *tables)")
        got = expect_pair(
            quietly(ops_of(part)).rope(q.clone(), k.clone(), positions, *tables), "rope"
        )
        for name, one, x in zip(("q", "k"), got, (q, k), strict=True):
            others = {
                f"It was turned as at positions {wrong.tolist()}, {told}": exact_rope(
                    x, wrong % FAR, *tables
                )
                for told, wrong in {
                    "a range that begins with the first.": positions[0] + torch.arange(3),
                    "which int16 makes of them.": positions.to(torch.int16).long(),
                }.items()
                if not torch.equal(wrong % FAR, positions)
            }
            expect_turned(one, x, positions, tables, f"{name} at positions {places}", others=others)


@task("2.3")
def test_rope_of_many_layers(part: ModuleType) -> None:
    """One object turns for all layers and steps: other tables, and positions that change in place."""
    ops, positions = ops_of(part), torch.tensor([1, 3])
    q, k = random(2, 2, 4), random(2, 1, 4, seed=1)
    cos, sin = rotary_tables(9, 2)
    stretched = "tables of another model layer, which stretch what they turn"
    calls: list[tuple[list[int], tuple[Tensor, Tensor]]] = []
    for what, tables in (("tables of one layer", (cos, sin)), (stretched, (1.5 * sin, 1.5 * cos))):
        for places in ([1, 3], [5, 2]):
            positions.copy_(torch.tensor(places))
            got = expect_pair(ops.rope(q.clone(), k.clone(), positions, *tables), "rope")
            for name, one, x in zip(("q", "k"), got, (q, k), strict=True):
                told = f"{name} at positions {places}, by {what}"
                others = dict(turned_as_before(x, places, tables, calls))
                expect_turned(one, x, positions, tables, told, others=others)
            calls.append((places, tables))


def turned_as_before(
    x: Tensor,
    places: list[int],
    tables: tuple[Tensor, Tensor],
    calls: list[tuple[list[int], tuple[Tensor, Tensor]]],
) -> Iterator[tuple[str, Tensor]]:
    """What is turned with something of an earlier call. calls: (positions, tables) of each."""
    for old, given in calls:
        if given is tables:
            told = (
                f"It was turned as at positions {old}, those of an earlier call. The same tensor "
                f"`positions` holds {places} now."
            )
            yield told, exact_rope(x, torch.tensor(old), *tables)
        elif old == places:
            yield (
                "It was turned by the tables of an earlier call. This call has its own.",
                exact_rope(x, torch.tensor(places), *given),
            )
    angles = torch.atan2(tables[1], tables[0])
    if not torch.allclose(angles.cos(), tables[0], atol=1e-4):
        told = "The tables were taken for cosines and sines of angles: they also stretch what they turn."
        yield told, exact_rope(x, torch.tensor(places), angles.cos(), angles.sin())


@task("2.3")
def test_rotations_leave_nothing_behind(part: ModuleType) -> None:
    """Each step has other positions, and none of them is kept."""
    ops, tables, places = part.TransformerOps(), rotary_tables(FAR, 2), count()
    note("# ops.rope(q, k, torch.tensor([place]), cos, sin) at places 0, 1, 2, ...")
    q, k = full(1, 2, 4), full(1, 1, 4)
    expect_keeps_nothing(lambda: ops.rope(q, k, torch.tensor([next(places)]), *tables), "rope")


@task("2.4")
def test_silu_mul_leaves_dense_inputs(part: ModuleType) -> None:
    """silu_mul does not change x, in any dtype, be it one row or many."""
    for dtype in DTYPES:
        for shape in ((1, 8), (2, 8)):
            start_script()
            expect_kept(ops_of(part).silu_mul, x=random(*shape).to(dtype))


@task("2.4")
def test_silu_mul_of_many_rows(part: ModuleType) -> None:
    """Rows may be many, and come out with all the digits of float32."""
    x = full(4200, 6)
    got = ops_of(part).silu_mul(x.clone())
    expect_near(got, exact_silu_mul(x), F32, "silu_mul of 4200 rows in float32")


@task("2.4")
def test_silu_mul_keeps_nan(part: ModuleType) -> None:
    """NaN of the gate or of the other half comes out as NaN."""
    x = random(3, 8)
    x[0, 1], x[1, 6] = NAN, NAN
    got = ops_of(part).silu_mul(x.clone())
    expect_nan_kept(got, exact_silu_mul(x), F32, "silu_mul with NaN in rows 0 and 1")


@task("2.5")
def test_masks_of_long_sequences(part: ModuleType) -> None:
    """Sequences and windows may be long: a query sees the keys of its window, to the one."""
    for kv_len, window in ((FAR, None), (FAR, 5000), (60, 21)):
        start_script()
        got = quietly(ops_of(part)).causal_mask(torch.tensor([kv_len]), 2, kv_len, window, F32)
        note(f"ops.causal_mask(tensor([{kv_len}]), 2, {kv_len}, {window}, float32)")
        expect_equal(list(got.shape), [1, 2, kv_len], "the shape of the mask, [n, tq, tk]")
        told = spans(got[0] == 0)
        right = [(keys[0], keys[-1]) for keys in seen_by(kv_len, 2, kv_len, window)]
        named = [f"{last - first + 1} keys, {first} to {last}" for first, last in right]
        why = (
            "These are the keys of positions of 16 bits, which end at 32,767: take int64 or int32."
        )
        why = why * (told == spans(seen_in_16_bits(kv_len, window)))
        if told != named:
            why = why or rounded_up(told, kv_len, window)
        what = f"what the last 2 of {kv_len} positions see with window {window}"
        expect_equal(told, named, what, why=why)


def rounded_up(told: list[str], kv_len: int, window: int | None) -> str:
    """Whether the window was rounded up, and to multiples of which number."""
    if window is None:
        return ""
    for step in (2**i for i in range(2, 13)):
        wide = -(-window // step) * step
        seen = torch.zeros(2, kv_len, dtype=torch.bool)
        for row, keys in enumerate(seen_by(kv_len, 2, kv_len, wide)):
            seen[row, keys] = True
        if wide != window and told == spans(seen):
            return f"{wide:,} is the window, {window:,}, rounded up to a multiple of {step}."
    return ""


def spans(seen: Tensor) -> list[str]:
    """How many keys each query sees, and from where to where."""
    places = [row.nonzero().flatten().tolist() for row in seen]
    return [f"{len(keys)} keys" + (f", {keys[0]} to {keys[-1]}" if keys else "") for keys in places]


def seen_in_16_bits(kv_len: int, window: int | None) -> Tensor:
    """What the last two queries see if positions are int16."""
    keys = torch.arange(kv_len).to(torch.int16)
    places = torch.arange(kv_len - 2, kv_len).to(torch.int16)[:, None]
    seen = keys <= places
    return seen if window is None else seen & (keys > places - window)


@task("2.5")
def test_masks_of_full_decodes(part: ModuleType) -> None:
    """A mask that hides nothing has the dtype that was asked for, as any other."""
    for dtype in DTYPES:
        got = ops_of(part).causal_mask(torch.tensor([5, 5]), 1, 5, None, dtype)
        is_default = isinstance(got, Tensor) and got.dtype == F32
        why = "The mask has the dtype that was asked for. A tensor made without `dtype` is float32."
        expect_tensor(got, dtype, "the mask of decodes that see everything", why * is_default)
        expect_equal(list(got.shape), [2, 1, 5], "the shape of the mask, [n, tq, tk]")
        expect(not bool(got.any()), "something is hidden from decodes that see everything")


@task("2.5")
def test_masks_leave_nothing_behind(part: ModuleType) -> None:
    """Each step has other lengths, and none of their masks is kept."""
    ops, lengths = part.TransformerOps(), count(2)
    note("# ops.causal_mask(torch.tensor([n]), 1, n, None, torch.float32) for n = 2, 3, 4, ...")

    def call() -> Tensor:
        length = next(lengths)
        mask: Tensor = ops.causal_mask(torch.tensor([length]), 1, length, None, F32)
        return mask

    expect_keeps_nothing(call, "causal_mask")


def specs_of(extras: bool) -> Iterator[AttentionSpec]:
    """Kinds of attention: for 2.7 with a softcap or sinks."""
    if not extras:
        yield AttentionSpec(0.5)
        return
    yield AttentionSpec(0.5, softcap=2.0)
    yield AttentionSpec(0.5, sinks=torch.tensor([0.5, -1.0]))


def expect_dense_kept(part: ModuleType, extras: bool) -> None:
    """attention changes none of its arguments where they have no gaps, in any dtype."""
    for dtype in DTYPES:
        for spec in specs_of(extras):
            start_script()
            shapes = ((2, 2, 2, 4), (2, 5, 2, 4), (2, 5, 2, 4))
            q, k, v = (random(*s, seed=i).to(dtype) for i, s in enumerate(shapes))
            mask = TransformerOps().causal_mask(torch.tensor([5, 3]), 2, 5, None, dtype)
            sinks = {} if spec.sinks is None else {"sinks": spec.sinks}

            def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, **_: Tensor) -> None:
                got = ops_of(part).attention(q, k, v, mask, spec)  # noqa: B023
                expect_tensor(got, dtype, "attention")  # noqa: B023

            expect_kept(call, q=q, k=k, v=v, mask=mask, **sinks)


def expect_wide_scores(part: ModuleType, spec: AttentionSpec) -> None:
    """In float16, scores may be larger than float16 holds before they are scaled."""
    shapes = ((1, 3, 2, 4), (1, 6, 1, 4), (1, 6, 1, 4))
    q, k, v = (random(*s, seed=i) for i, s in enumerate(shapes))
    q, k, v = (200 * q).half(), (200 * k).half(), v.half()
    got = attend(part, q, k, v, spec, [6])
    exact = naive_attention(q.double(), k.double(), v.double(), spec, torch.tensor([6]))
    top = float(q.double().abs().amax() * k.double().abs().amax())
    why = f"Products of q and k here go up to {top:,.0f}, and float16 ends at 65,504. {WIDE}"
    expect_near(got, exact, F16, "attention in float16 over large products", why=why)


def expect_long(part: ModuleType, extras: bool) -> None:
    """Many rows, many queries and many keys, with all the digits of float32."""
    for spec in specs_of(extras):
        for n, tq, tk in ((140, 1, 3), (1, 140, 600)):
            start_script()
            q, k, v = full(n, tq, 2, 4), full(n, tk, 1, 4, seed=1), full(n, tk, 1, 4, seed=2)
            if spec.sinks is None and spec.softcap is None:
                k[:, : tk // 2] *= 3  # so that scores differ from piece to piece
            what = f"attention of {n} rows of {tq} queries on {tk} keys"
            got = attend(part, q, k, v, spec, [tk] * n)
            try:
                expect_attended(got, q, k, v, spec, [tk] * n, what=what)
            except Mismatch as error:
                if not extras:
                    error.why = error.why or own_maxima(got, q, k, v, spec.scale)
                raise


def expect_attention_keeps_nan(part: ModuleType, extras: bool) -> None:
    """NaN in a row's query, key or value comes out of that row, and of no other."""
    for spec in specs_of(extras):
        for index, name in enumerate(("query", "key", "value")):
            start_script()
            inputs = [random(2, n, 2, 4, seed=i) for i, n in enumerate((2, 4, 4))]
            inputs[index][1, 0, 0, 0] = NAN
            q, k, v = inputs
            got = attend(part, q, k, v, spec, [4, 3])
            exact = naive_attention(q.double(), k, v, spec, torch.tensor([4, 3]))
            what = f"attention with NaN in the first {name} of row 1"
            expect_nan_kept(got, exact, F32, what)


@task("2.6")
def test_attention_leaves_dense_inputs(part: ModuleType) -> None:
    """q, k, v and the mask are as before where they have no gaps, too, in any dtype."""
    expect_dense_kept(part, extras=False)


@task("2.6")
def test_wide_scores_in_float16(part: ModuleType) -> None:
    """In float16, too, scores are computed in float32, where they do not overflow."""
    expect_wide_scores(part, AttentionSpec(1e-4))


@task("2.6")
def test_attention_of_many(part: ModuleType) -> None:
    """However many rows, queries and keys there are, all are attended."""
    expect_long(part, extras=False)


@task("2.6")
def test_attention_keeps_nan(part: ModuleType) -> None:
    """NaN in a row of the batch comes out of that row."""
    expect_attention_keeps_nan(part, extras=False)


@task("2.7")
def test_explicit_attention_leaves_dense_inputs(part: ModuleType) -> None:
    """With a softcap or sinks, too, dense arguments are as before, in any dtype."""
    expect_dense_kept(part, extras=True)


@task("2.7")
def test_wide_scores_with_softcap_or_sinks_in_float16(part: ModuleType) -> None:
    """With a softcap or sinks, too, scores in float16 are computed in float32."""
    expect_wide_scores(part, AttentionSpec(1e-4, softcap=5.0))
    start_script()
    expect_wide_scores(part, AttentionSpec(1e-4, sinks=torch.tensor([1.0, -2.0])))


@task("2.7")
def test_sinks_of_zero(part: ModuleType) -> None:
    """A sink of 0 is a score of 0, and takes its share."""
    q, k, v = random(1, 2, 2, 4), random(1, 3, 2, 4, seed=1), random(1, 3, 2, 4, seed=2)
    spec = AttentionSpec(0.5, sinks=torch.zeros(2))
    why = "A sink of 0 weighs e^0 = 1, as a key of score 0 does. No sinks at all are None."
    expect_attention(part, q, k, v, spec, [3], what="attention with two sinks of 0", why=why)


@task("2.7")
def test_a_large_softcap(part: ModuleType) -> None:
    """A softcap of 50, as Gemma 2 has it, bends scores of 40."""
    q, k = (
        torch.ones(1, 1, 1, 2),
        torch.tensor([36.0, 40.0]).view(1, 2, 1, 1).expand(1, 2, 1, 2) / 2,
    )
    v = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1).expand(1, 2, 1, 2).clone()
    why = "50 * tanh(36 / 50) is 30.8, and 50 * tanh(40 / 50) is 33.2."
    spec, what = AttentionSpec(1.0, softcap=50.0), "attention to scores 36 and 40 at softcap 50"
    expect_attention(part, q, k.clone(), v, spec, [2], what=what, why=why)


@task("2.7")
def test_explicit_attention_of_many(part: ModuleType) -> None:
    """With a softcap or sinks, too, all rows, queries and keys are attended."""
    expect_long(part, extras=True)


@task("2.7")
def test_explicit_attention_keeps_nan(part: ModuleType) -> None:
    """With a softcap or sinks, too, NaN in a row of the batch comes out of that row."""
    expect_attention_keeps_nan(part, extras=True)
