"""Task 11.4: sliding window, softcap and sinks, in one part and in several."""

import math
from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, task
from grader.suites.triton_paged_attention.bench import (
    Case,
    attend,
    expect_attention,
    expect_rows,
    filled,
    loads_by_program,
    make_case,
)

INF = math.inf


@task("11.4")
def test_a_window_holds_the_last_keys(part: ModuleType) -> None:
    """A query sees the last `window` keys, its own among them."""
    for window, mean in ((1, 9.0), (2, 8.5), (9, 5.0), (10, 4.5), (50, 4.5)):
        case = make_case([10], block_size=4, window=window)
        case = filled(case, keys=lambda i, p: 0.0, values=lambda i, p: float(p))
        why = f"Keys {max(0, 10 - window)} to 9 are seen: the first is length - window, or 0."
        expect_rows(
            part,
            case,
            [mean],
            f"the mean of 10 values 0 to 9 in a window of {window}",
            why,
            splits=1,
        )


@task("11.4")
def test_a_window_saves_reading(part: ModuleType) -> None:
    """Keys before the window are not read, however long the sequence is."""
    case = make_case([900], block_size=16, window=40)
    seen = expect_attention(part, case, splits=1)
    read = seen.loads(case.pool.key_blocks) // 16
    expect(
        read <= 40 + 128,
        f"{read} keys are read for a window of 40",
        why="Hidden by a mask, keys cost as much as seen ones: begin at the window, or at its tile.",
    )
    _, short = attend(part, make_case([40 + 128], block_size=16), splits=1, beside=True)
    expect(
        seen.dots <= short.dots,
        f"for a window of 40 in 900 keys tl.dot is called {seen.dots} times; all of 168 keys take "
        f"{short.dots}",
        why="A tile whose lanes are all masked reads nothing, but takes its turn: the loop over tiles "
        "begins at `start`.",
    )


@task("11.4")
def test_a_window_is_divided_too(part: ModuleType) -> None:
    """With several parts, it is the keys of the window that are divided."""
    why = (
        "Both kernels must know where keys begin: they divide start..end, and a part without keys in "
        "one of them must be one in the other."
    )
    largest = []
    for window in (300, 100):
        case = make_case([700, 90], block_size=16, kv_heads=2, window=window)
        what = f"sequences of 700 and 90 keys with a window of {window}, in 3 parts"
        with loads_by_program(case.pool.key_blocks) as loads:
            expect_attention(part, case, splits=3, what=what, why=why)
        largest.append(max(loads.values()) // 16)
    case = make_case([300], block_size=16)
    with loads_by_program(case.pool.key_blocks) as loads:
        attend(part, case, splits=3, beside=True)
    whole = max(loads.values()) // 16
    expect(
        largest[0] <= whole + 16,  # a window may begin in the middle of a block
        f"in 3 parts of a window of 300 keys, a program reads up to {largest[0]} keys; in 3 parts of a "
        f"sequence of 300, up to {whole}",
        why="The keys before the window are in no part: part_of divides end - start keys.",
    )


def scores_of(lens: list[int], score: float, **spec: object) -> Case:
    """The last key of each sequence has this product with the query, the others 0; its value is 1."""
    case = make_case(lens, block_size=4, **spec)  # type: ignore[arg-type]
    return filled(
        case,
        keys=lambda i, p: score / 16 if p == lens[i] - 1 else 0.0,
        values=lambda i, p: float(p == lens[i] - 1),
        q=1.0,
    )


@task("11.4")
def test_nothing_hides_behind_a_softcap(part: ModuleType) -> None:
    """What does not exist stays hidden under a softcap."""
    case = make_case([5], block_size=4, softcap=2.0)
    case = filled(case, keys=lambda i, p: -4.0, q=1.0)
    why = (
        "softcap * tanh(-inf) is -softcap, a score like any other: slots behind the end must be hidden "
        "after the softcap."
    )
    what = "5 keys that score at the lower end of the softcap"
    expect_attention(part, case, splits=1, what=what, why=why)


@task("11.4")
def test_a_softcap_bounds_the_scores(part: ModuleType) -> None:
    """With a softcap, scores become softcap * tanh(score / softcap), after the scale."""
    why = "2 * tanh(10 / 2) is nearly 2, so the keys weigh 1 to e^2: 0.881."
    expect_rows(
        part,
        scores_of([2], 10.0, scale=1.0, softcap=2.0),
        [0.8807780],
        "the weight of score 10 beside score 0, softcap 2",
        why,
        splits=1,
    )
    why = "The softcap acts on the scaled score: 2 * tanh(1 / 2) is 0.924, so 0.716."
    expect_rows(
        part,
        scores_of([2], 10.0, scale=0.1, softcap=2.0),
        [0.7159041],
        "the same at scale 0.1",
        why,
        splits=1,
    )
    why = "tanh of a large number is 1: written with exp, it must not divide infinity by infinity."
    for score in (800.0, -800.0):
        case = scores_of([2], score, scale=1.0, softcap=1.0)
        expect_attention(part, case, splits=1, what=f"score {score:g} with a softcap of 1", why=why)


@task("11.4")
def test_a_sink_takes_its_share(part: ModuleType) -> None:
    """A sink joins the softmax of its query head as a key without a value."""
    sinks = torch.tensor([0.0, -INF, math.log(5.0), 1000.0])
    case = filled(
        make_case([3], kv_heads=2, group=2, sinks=sinks),
        keys=lambda i, p: 0.0,
        values=lambda i, p: 4.0,
    )
    why = (
        "Three keys of score 0 and a sink of 0 share the weight: 3/4 of the value 4 is left. A sink of "
        "-inf has no share, one of log 5 has 5/8, and one of 1000 all. Every query head has its own, "
        "and neither scale nor softcap concerns it."
    )
    expect_rows(
        part,
        case,
        [3.0, 4.0, 1.5, 0.0],
        "heads with sinks 0, -inf, log 5, 1000 over values of 4",
        why,
        splits=1,
    )


@task("11.4")
def test_a_sink_is_neither_scaled_nor_capped(part: ModuleType) -> None:
    """Scale and softcap are for products of queries and keys: a sink is a logit already."""
    sinks = torch.tensor([3.0])
    why = "Scores 0 and 0.5 and a sink of 3: e^0.5 / (1 + e^0.5 + e^3) is 0.0725."
    case = scores_of([2], 10.0, scale=1.0, softcap=0.5, sinks=sinks)
    expect_rows(
        part,
        case,
        [0.0725214],
        "the last key's weight at softcap 0.5 with a sink of 3",
        why,
        splits=1,
    )
    case = scores_of([2], 10.0, scale=0.25, sinks=sinks)
    expect_attention(
        part, case, splits=1, what="a sink of 3 at scale 0.25", why="A sink is no score."
    )


@task("11.4")
def test_sinks_may_be_in_half_precision(part: ModuleType) -> None:
    """Sinks come in the model's dtype, and are computed with in float32."""
    sinks = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    case = make_case([7, 3], group=2, dtype=torch.bfloat16, sinks=sinks)
    why = "A model in bfloat16 brings its sinks in bfloat16: widen what is loaded."
    expect_attention(part, case, splits=1, what="decode with sinks in bfloat16", why=why)


@task("11.4")
def test_a_sink_counts_once(part: ModuleType) -> None:
    """Divided into parts, a row has its sink once."""
    sinks = torch.tensor([2.0])
    case = filled(
        make_case([400, 3], block_size=16, sinks=sinks),
        keys=lambda i, p: 0.0,
        values=lambda i, p: 1.0,
    )
    why = "400 keys and one sink of e^2: in every part, it would weigh as often as there are parts."
    weight = math.exp(2.0)
    expect_rows(
        part,
        case,
        [400 / (400 + weight), 3 / (3 + weight)],
        "the weight of the keys, 4 parts",
        why,
        splits=4,
    )


@st.composite
def extras(draw: st.DrawFn) -> tuple[Case, int]:
    lens = draw(st.lists(st.integers(1, 12), min_size=1, max_size=2))
    lens.append(draw(st.integers(1, 300)))
    kv_heads, group = draw(st.sampled_from([(1, 1), (1, 3), (2, 2)]))
    seed = draw(st.integers(0, 99))
    spec: dict[str, object] = {"window": draw(st.none() | st.integers(1, 200))}
    if draw(st.booleans()):
        spec["softcap"] = draw(st.sampled_from([0.5, 2.0]))
    if draw(st.booleans()):
        spec["sinks"] = torch.randn(kv_heads * group, generator=torch.Generator().manual_seed(seed))
    case = make_case(lens, block_size=16, kv_heads=kv_heads, group=group, seed=seed, **spec)  # type: ignore[arg-type]
    return case, draw(st.integers(1, 3))


@task("11.4")
@examples(10)
@given(extras())
def test_any_window_softcap_and_sinks(part: ModuleType, case: tuple[Case, int]) -> None:
    """Any window, softcap and sinks together, in any number of parts, are their definition."""
    expect_attention(part, case[0], splits=case[1])
