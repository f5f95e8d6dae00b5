"""Task 5.3: write, gather, attend. Which query sees which keys is read off the output."""

from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import Mismatch, examples, expect, expect_equal, note, start_script, task
from grader.kit.standing import BUFFER
from grader.suites.radix_attention.batches import (
    LAYERS,
    SPEC,
    Seq,
    attention_of,
    expect_like,
    expect_rows,
    make_case,
    sequences,
    with_prefix_of,
)
from grader.suites.radix_attention.seen import (
    expect_seen,
    marked,
    misses_the_last,
    sees_later_ones,
    what_does_harm,
)
from solutions.radix_attention.naive import naive_radix_attention
from solutions.transformer_ops import TransformerOps
from yaie.core.batch import AttentionSpec

NAN, INF = float("nan"), float("inf")


@task("5.3")
def test_new_keys_and_values_are_stored(part: ModuleType) -> None:
    """After run, the new K and V lie in the slots of slot_mapping, for the steps to come."""
    case = make_case(sequences((3, 7), (1, 5)))
    slots = case.batch.slot_mapping
    before = [stored.flatten(0, 1)[slots] for stored in case.pool.blocks(1)]
    case.run(part, layer=1)
    pools = zip("KV", case.pool.blocks(1), before, case.qkv[1:], strict=True)
    for name, stored, old, new in pools:
        held = stored.flatten(0, 1)[slots]
        untouched = ", but what they held before `run`" * torch.equal(held, old)
        expect(
            torch.equal(held, new),
            f"the slots of the new tokens do not hold their {name}{untouched}",
            why="The next token attends to this one through the pool; nothing else keeps it.",
        )


@task("5.3")
def test_new_keys_are_written_before_they_are_attended(part: ModuleType) -> None:
    """A prompt attends to its own tokens: they are in the pool before the gather."""
    case, other = make_case(sequences((4, 4))), make_case(sequences((4, 4)))
    other.qkv[2].add_(1)
    q = case.qkv[0]
    without = naive_radix_attention(case.pool, TransformerOps(), 0, q, SPEC, case.batch)
    out = case.run(part)
    expect_like(out, q)
    returned = out.clone()
    moved = other.run(part)
    if not torch.equal(out.nan_to_num(), returned.nan_to_num()):
        raise Mismatch("the output of one `run` has changed in the next one", why=BUFFER)
    is_without = torch.allclose(out, without, rtol=1e-9, atol=1e-9)
    expect(
        not torch.equal(out[1:], moved[1:]),
        "the output is the same whatever the new values are",
        why="Written after the gather, the new K and V are missing from what this step attends to. The "
        "output is that of what the pool held before." * is_without,
    )


@task("5.3")
def test_a_decode_sees_itself_and_all_before(part: ModuleType) -> None:
    """A decode with kv_len keys is at position kv_len - 1 and sees all of them, its own included."""
    why = "kv_lens counts the new token: its key is the last that counts. Off by one, it is missed."
    for keys in (4, 8):
        case = marked(sequences((1, keys)))
        expect_seen(case, case.run(part), why=why, fits=misses_the_last)


@task("5.3")
def test_a_chunk_is_causal(part: ModuleType) -> None:
    """Each query of a chunk sees what came before the chunk, and of the chunk itself up to its own."""
    case = marked(sequences((3, 8)))
    why = "Query j of a chunk is at position kv_len - query_len + j; what comes later is hidden."
    expect_seen(case, case.run(part), why=why, fits=sees_later_ones)


@task("5.3")
def test_keys_end_at_the_chunk(part: ModuleType) -> None:
    """Keys end where the chunk ends, though the table has room for the whole prompt."""
    case = marked([Seq(3, 6, [4, 2, 1, 3])])
    why = (
        "The table covers the prompt, of which this chunk is a part: the slots behind it are not filled "
        "yet. The key length is kv_lens, not the end of the last block or of the table."
    )
    expect_seen(case, case.run(part), why=why, fits=sees_later_ones)


INFINITE = (
    "With NaN in these slots the output is right, with inf it is not: a hidden key has weight 0, and "
    "0 * inf is NaN, too. Every unused slot must be made finite, whatever it holds."
)


@task("5.3")
def test_unused_slots_may_hold_anything(part: ModuleType) -> None:
    """What the last owner of a block left behind the keys does not matter, not even NaN or infinity."""
    why = (
        "A hidden key has weight 0, but 0 * NaN is NaN, and so is 0 * inf: all unused slots must be "
        "made finite, keys and values. Which those are is worked out in plan, and run cleans them."
    )
    for queries, keys in ((1, 6), (2, 9)):
        for stale in (NAN, INF):
            start_script()
            note(f"# every slot without a key holds {stale}")
            expect_clean(part, sequences((queries, keys)), stale, why if stale is NAN else INFINITE)


@task("5.3")
def test_padding_may_hold_anything(part: ModuleType) -> None:
    """Where a short sequence is padded to a long one, what lies in the padding does not matter."""
    why = (
        "Tables are padded with 0: for its padding a short sequence gathers block 0, which is not its "
        "own, and here full of NaN. All slots behind its keys are unused, to the width of the group."
    )
    for lens in (((1, 13), (1, 2)), ((1, 16), (1, 5), (1, 2))):
        start_script()
        note("# every slot without a key holds nan, block 0 too")
        expect_clean(part, sequences(*lens), NAN, why)


def expect_clean(part: ModuleType, seqs: list[Seq], stale: float, why: str) -> None:
    """What lies in unused slots, which is `stale`, does no harm; or it is told where it does."""
    case = marked(seqs, stale)
    try:
        expect_seen(case, case.run(part), why=why)
    except Mismatch as error:
        if error.got == "NaN":
            harm = what_does_harm(part, seqs, stale)
            error.why = f"{harm} {error.why}".strip() if why is not INFINITE else error.why
        raise


@task("5.3")
def test_other_slots_are_left_alone(part: ModuleType) -> None:
    """run writes to the slots of slot_mapping and to no other."""
    case = make_case(sequences((1, 6), (1, 2), (3, 11), first_block=0))
    before = [stored.flatten(0, 1).clone() for stored in case.pool.blocks(0)]
    case.run(part)
    others = torch.ones(len(before[0]), dtype=torch.bool)
    others[case.batch.slot_mapping] = False
    for name, old, stored in zip("KV", before, case.pool.blocks(0), strict=True):
        now = stored.flatten(0, 1)
        changed = ((now != old).flatten(1).any(1) & others).nonzero().flatten().tolist()
        if changed:
            zero = " All of these are 0 now." if not bool(now[changed].any()) else ""
            raise Mismatch(
                f"`run` has changed the pool's {name} in slots that are not in slot_mapping",
                "no other slot", f"slots {', '.join(map(str, changed))}",
                "What gather returns is a copy and may be cleaned; the pool itself is shared, and the "
                f"0 that pads a table is a block that others use.{zero}",
            )  # fmt: skip


@task("5.3")
def test_decodes_and_chunks_in_one_batch(part: ModuleType) -> None:
    """Decodes and prompt chunks of one batch each see their own sequence."""
    case = marked(sequences((1, 9), (1, 5), (3, 7), (4, 4)))
    why = "Every group is attended, with its own queries, table and mask."
    expect_seen(case, case.run(part), why=why)


@task("5.3")
def test_a_shared_prefix_is_read_by_all(part: ModuleType) -> None:
    """Sequences whose tables begin with the same blocks read the same prefix, without a copy of it."""
    case = marked([Seq(1, 12, [5, 2, 3]), Seq(1, 11, [5, 2, 1]), Seq(2, 10, [5, 2, 4])])
    expect_seen(
        case, case.run(part), why="A table is followed, whichever requests share its blocks."
    )


@task("5.3")
def test_windows_by_layer_with_one_plan(part: ModuleType) -> None:
    """One plan serves layers with a sliding window and layers without."""
    case = marked(sequences((1, 9), (3, 7)))
    attention = attention_of(part, case.pool)
    plan = case.plan(attention)
    why = "The window is the layer's, in spec: a mask kept in the plan serves layers with that window."
    for layer, window in enumerate((None, 3, 2)):
        spec = AttentionSpec(SPEC.scale, window=window)
        expect_seen(case, case.run_layer(attention, plan, layer, spec), window, why)


@task("5.3")
def test_layers_have_their_own_keys(part: ModuleType) -> None:
    """Each layer writes and reads its own K and V."""
    case = make_case(sequences((1, 6), (3, 7)))
    expected = [case.expected(layer) for layer in range(LAYERS)]
    attention = attention_of(part, case.pool)
    plan = case.plan(attention)
    for layer in range(LAYERS):
        out = case.run_layer(attention, plan, layer)
        why = f"Layer {layer} has keys and values of its own."
        expect_rows(case, out, expected[layer], why, layer=layer)


class CountedMasks(TransformerOps):
    """Operations that count the masks they make."""

    made = 0

    def causal_mask(self, *args: Any, **kwargs: Any) -> Tensor:
        self.made += 1
        return super().causal_mask(*args, **kwargs)


@task("5.3")
def test_a_mask_is_made_once_for_all_layers(part: ModuleType) -> None:
    """Layers with the same window share their masks: the first of them makes them."""
    case, ops = make_case(sequences((1, 6), (3, 7))), CountedMasks()
    attention = attention_of(part, case.pool, ops)
    plan = case.plan(attention)
    case.run_layer(attention, plan, layer=0)
    made = ops.made
    case.run_layer(attention, plan, layer=1)
    why = "A mask follows from the lengths and the window, which do not change within a step."
    expect_equal(ops.made - made, 0, "masks made by the second layer", why=why)


@st.composite
def orderly(draw: st.DrawFn) -> list[Seq]:
    """Sequences of one query length are neighbours, the longest first; some share their prefix."""
    lens = draw(
        st.lists(
            st.tuples(st.sampled_from([1, 1, 3, 4]), st.integers(0, 11)), min_size=1, max_size=6
        )
    )
    lens = sorted(((q, q + before) for q, before in lens), key=lambda item: (item[0], -item[1]))
    seqs = sequences(*lens)
    if draw(st.booleans()):
        longest = max(seqs, key=lambda seq: seq.keys - seq.queries)
        seqs = [with_prefix_of(longest, seq) for seq in seqs]
    return seqs


SINKS = torch.tensor([0.5, 0.0, 2.0, -2.0])
SPECS = st.builds(
    AttentionSpec,
    scale=st.sampled_from([0.3, 1.0]),
    window=st.sampled_from([None, 1, 5]),
    softcap=st.sampled_from([None, 2.0]),
    sinks=st.sampled_from([None, SINKS]),
)


@task("5.3")
@examples(60)
@given(seqs=orderly(), spec=SPECS, stale=st.sampled_from([None, NAN]), layer=st.integers(0, 2))
def test_any_batch_equals_the_oracle(
    part: ModuleType, seqs: list[Seq], spec: AttentionSpec, stale: float | None, layer: int
) -> None:
    """Attention over the pool equals attention over the joined keys, one sequence at a time."""
    # Softcap and sinks are computed in float32 by the operations, whatever they are given.
    plain = spec.softcap is None and spec.sinks is None
    case = make_case(seqs, stale, torch.float64 if plain else torch.float32)
    expected = case.expected(layer, spec)
    out = case.run(part, layer, spec)
    why = "Each sequence's table, up to its key length, holds the keys that its queries see."
    tolerance = 1e-9 if plain else 2e-5
    expect_rows(case, out, expected, why, tolerance, layer, spec)
