"""Task 22.7: a draft that was wrong leaves no trace in a state."""

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from grader.kit import Fault, examples, expect, expect_equal, note, start_script, task
from grader.kit.storage import expect_calls_apart, expect_nothing_is_kept
from grader.suites.state_cache.drafts import Case, Layer, after, brought, layers, settle, upload
from grader.suites.state_cache.operations import (
    ON_DEVICE,
    expect_as_many,
    expect_as_much,
    expect_no_reads,
)
from grader.suites.state_cache.rules import BF16, EXACT, F32, F64, drawn, expect_values
from yaie.core.contracts.rollback import Kept
from yaie.core.contracts.states import StateBatch

BEFORE = (
    "A state is changed in its place. What it was before the step has to be copied before compute "
    "is called."
)
BACK = (
    "Only sequences with drafts wait. For another one back[i] is the slot of padding: its own slot "
    "keeps what the step has made of it."
)
NARROWER = F32, BF16
BITS = "What is put back is what was there, in the pool's dtype, to the bit."
TOUCHED = (
    "A pool has the states of hundreds of requests, some megabytes each. Copy and write those of "
    "`slots` alone."
)
LOOP = "One copy reads the slots of all sequences, and one writes them."
COUNT = (
    "The tokens that count are the first of a sequence: those before its drafts, and the accepted ones. "
    "num_gained has one more than were accepted, which the model drew itself: it has not been computed "
    "yet."
)
EACH = "Each sequence has a count of its own."
WAITS = (
    "A sequence without drafts has moved on in the step itself. A state that absorbs a token a second "
    "time is another state."
)
FAILED = "A sequence that has gained nothing has failed. Its state stays as it was before the step."
ROWS = (
    "What was kept has the rows of all sequences, one after the other, of those that stay where they "
    "are as well; what lies after the last one is padding."
)
FRESH = "A sequence that began in this step begins from zeros again: its slot may hold anything."
ONCE = (
    "A layer's states are moved on by one call for all sequences: each call is a launch or more, and a "
    "step has dozens of layers."
)
NOTHING = (
    "Where no state is to move on, nothing is computed: a kernel cannot be launched for nothing."
)
AGAIN = (
    "A step that was recorded is settled again and again: its replays fill the same tensors anew, and "
    "the same list is handed in each time."
)
UPLOADS = (
    "Which rows count, and the batch, are the same for all layers: they are uploaded once, as whole "
    "arrays."
)


def index(slots: Sequence[int]) -> Tensor:
    return torch.tensor(slots, dtype=torch.int64)


# --- run_ahead ---


def ahead(
    part: ModuleType, pool: Tensor, slots: list[int], back: list[int], new: Tensor
) -> tuple[Any, Tensor]:
    """Have the part call what writes `new` [m, ...] to the slots; what it returned, and what was to be
    returned."""
    out = drawn(len(slots), 2, seed=3)
    calls: list[int] = []

    def compute() -> Tensor:
        calls.append(1)
        pool[index(slots)] = new.to(pool.dtype)
        return out

    note(f"run_ahead(compute, pool {list(pool.shape)}, slots={slots}, back={back})")
    got = part.run_ahead(compute, pool, index(slots), index(back))
    expect_equal(len(calls), 1, "calls of compute")
    return got, out


@task("22.7")
def test_a_state_is_put_back(part: ModuleType) -> None:
    """Slots 2 and 0 hold 30 and 10; compute makes 31 and 11 of them; they hold 30 and 10 again."""
    numbers, new = torch.tensor([10.0, 20.0, 30.0, 40.0]), torch.tensor([31.0, 11.0])
    moved = torch.tensor([11.0, 20.0, 31.0, 40.0])
    shapes = {"numbers": (1,), "tails": (1, 1), "matrices": (1, 1, 1)}
    pools, returned = {}, []
    for name, shape in shapes.items():
        pools[name] = numbers.clone().view(-1, *shape)
        returned.append(ahead(part, pools[name], [2, 0], [2, 0], new.view(-1, *shape)))
    wrong = [name for name, pool in pools.items() if not torch.equal(pool.flatten(), numbers)]
    for name in wrong:
        told = BEFORE
        if len(wrong) < len(pools):
            others = " and ".join(other for other in pools if other not in wrong)
            told = f"Slots of {others} are put back; those of {' and '.join(wrong)} are not."
        what = f"the pool of {name}, {list(pools[name].shape)}, after it"
        kinds = {
            f"This is the state after the step. {told}": lambda name=name: moved.view_as(
                pools[name]
            )
        }
        right = numbers.view_as(pools[name])
        expect_values(pools[name], right, what, tolerance=0.0, why=BEFORE, kinds=kinds)
    for got, out in returned:
        expect_values(
            got, out, "what run_ahead returned", tolerance=0.0, why="What compute returns."
        )


@task("22.7")
def test_sequences_without_drafts_move_on(part: ModuleType) -> None:
    """Of three sequences one has drafts. The other two have the slot of padding, 5, in back."""
    for shape in ((3, 2), (2, 4, 3)):
        pool = drawn(6, *shape, seed=1, dtype=F32)
        pool[[2, 5]] = torch.nan  # of another request, and of padding
        before, new = pool.clone(), drawn(3, *shape, seed=2, dtype=F32)
        ahead(part, pool, [1, 4, 0], [1, 5, 5], new)
        right = before.clone()
        right[[4, 0]] = new[1:]
        moved, undone = right.clone(), before
        moved[1] = new[0]
        kinds = {
            f"The states of all sequences were put back. {BACK}": lambda undone=undone: undone[:5],
            f"No state was put back. {BEFORE}": lambda moved=moved: moved[:5],
        }
        what = f"slots 0 to 4 of a pool of {list(shape)}"
        expect_values(pool[:5], right[:5], what, tolerance=0.0, why=BACK, kinds=kinds)


@task("22.7")
def test_states_come_back_to_the_bit(part: ModuleType) -> None:
    """In each dtype, in a pool whose slots lie apart."""
    for dtype in (BF16, F32, F64):
        piece = drawn(5, 40, seed=4).to(dtype)
        piece[3] = torch.nan
        pool = piece[:, 16:28].unflatten(1, (3, 4))
        before = piece.clone()
        ahead(part, pool, [0, 2, 4], [0, 2, 4], drawn(3, 3, 4, seed=5))
        what = f"the memory of a pool of {dtype}"
        kinds = {
            f"These are the numbers rounded to {one}.": rounded(before, one) for one in NARROWER
        }
        expect_values(piece, before, what, tolerance=0.0, why=BITS, kinds=kinds)


def rounded(before: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
    """What the memory of `test_states_come_back_to_the_bit` holds if states are copied in a dtype."""

    def compute() -> Tensor:
        narrow = before.clone()
        narrow[::2, 16:28] = narrow[::2, 16:28].to(dtype).to(before.dtype)
        return narrow

    return compute


@task("22.7")
def test_slots_are_copied_at_once_and_alone(part: ModuleType) -> None:
    """As many operations for 20 sequences as for 2, and as much work among 90 slots as among 9."""

    def of(count: int, num_slots: int) -> Callable[[], Any]:
        pool, out, slots = torch.zeros(num_slots, 50), torch.zeros(1), torch.arange(count)
        return lambda: part.run_ahead(lambda: out, pool, slots, slots)

    expect_no_reads(of(3, 9), "run_ahead")
    expect_as_many(part, "run_ahead", of(2, 30), of(20, 30), "2 sequences and with 20", LOOP)
    for check in (expect_as_many, expect_as_much):
        check(part, "run_ahead", of(2, 9), of(2, 90), "2 of 9 slots and of 90", TOUCHED)

    def call(seed: int) -> Any:
        pool, out = drawn(4, 3, seed=seed), drawn(2, seed=seed + 1)
        return part.run_ahead(lambda: out, pool, index([0, 1]), index([0, 3]))

    expect_calls_apart({"run_ahead": call})


# --- settle ---


def check(own: Sequence[Layer], case: Case, tokens: Sequence[list[Tensor]], part: ModuleType,
          why: str) -> None:  # fmt: skip
    """Settle, and look at every slot, with what usual mistakes would give."""
    right, kinds, before = [], [], [layer.pool.clone() for layer in own]
    for layer, given_ in zip(own, tokens, strict=True):
        right.append(after(case, layer, given_, case.spans(case.counts)))
        kinds.append(_kinds(case, Layer(layer.name, layer.rule, layer.pool.clone()), given_))
    settle(part, case, own, tokens)
    for layer, exact, own_kinds, old in zip(own, right, kinds, before, strict=True):
        got, what = layer.pool[index(case.slots)], f"the {layer.name} of each sequence"
        expect_values(got, exact, what, tolerance=EXACT, why=why, kinds=own_kinds)
        others = [slot for slot in range(len(old)) if slot not in case.slots]
        others += [slot for slot, n in zip(case.slots, case.counts, strict=True) if not n]
        what = f"the {layer.name} of slots that stay, {others}"
        expect_values(layer.pool[others], old[others], what, tolerance=0.0, why=f"{WAITS} {FAILED}")


def _kinds(case: Case, layer: Layer, tokens: Sequence[Tensor]) -> dict[str, Callable[[], Tensor]]:
    """What mistakes would give."""
    lens, counts = case.lens, case.counts
    those = [n for n in counts if n]

    def of(other: Callable[[int], int]) -> Callable[[], Tensor]:
        """counts: of each sequence that is moved on, by its number."""
        chosen = [min(other(i), lens[i]) if n else 0 for i, n in enumerate(counts)]
        return lambda: after(case, layer, tokens, case.spans(chosen))

    def last() -> Tensor:
        ends = [begin + length for begin, length in zip(case.begins, lens, strict=True)]
        spans = [(end - n, end) for end, n in zip(ends, counts, strict=True)]
        return after(case, layer, tokens, spans)

    def closed_up() -> Tensor:
        kept = [length if n else 0 for length, n in zip(lens, counts, strict=True)]
        begins = [sum(kept[:i]) for i in range(len(kept))]
        spans = [(begin, begin + n) for begin, n in zip(begins, counts, strict=True)]
        return after(case, layer, tokens, spans)

    def also(those_too: Callable[[int], int]) -> Callable[[], Tensor]:
        chosen = [n or those_too(i) for i, n in enumerate(counts)]
        return lambda: after(case, layer, tokens, case.spans(chosen))

    return {
        f"One token too many was counted. {COUNT}": of(lambda i: counts[i] + 1),
        f"Only the accepted drafts were counted, from the first row on. {COUNT}": of(
            lambda i: case.gained[i] - 1
        ),
        f"The tokens before the drafts alone were counted. {COUNT}": of(
            lambda i: lens[i] - case.drafts[i]
        ),
        f"All drafts were counted. {COUNT}": of(lambda i: lens[i]),
        f"Each was moved on by {min(those, default=0)}, the smallest count of all. {EACH}": of(
            lambda i: min(those, default=0)
        ),
        f"Each was moved on by {max(those, default=0)}, the largest count of all. {EACH}": of(
            lambda i: max(those, default=0)
        ),
        f"The last tokens of each were taken, not the first. {COUNT}": last,
        f"Rows were taken as if those that stay had none. {ROWS}": closed_up,
        f"Those without drafts moved on again. {WAITS}": also(
            lambda i: lens[i] if case.gained[i] and not case.drafts[i] else 0
        ),
        f"Those without drafts moved on again, also where nothing was gained. {WAITS}": also(
            lambda i: 0 if case.drafts[i] else lens[i]
        ),
        f"Failed ones moved on. {FAILED}": also(
            lambda i: lens[i] - case.drafts[i] - 1 if case.drafts[i] else 0
        ),
        f"All went on from what their slots hold. {FRESH}": lambda: after(
            case, layer, tokens, case.spans(counts), [False] * len(lens)
        ),
        "All began from zeros: is_fresh says which do.": lambda: after(
            case, layer, tokens, case.spans(counts), [True] * len(lens)
        ),
    }


@task("22.7")
def test_a_tail_by_hand(part: ModuleType) -> None:
    """A tail of 5, 1; the tokens 2, 6 and the drafts 4, 3, 7, of which the first was accepted: 6, 4."""
    tails = layers(1, seed=0)[0]
    tails.pool = torch.tensor([[[5.0, 1.0]]], dtype=F64)
    x = torch.tensor([[2.0], [6.0], [4.0], [3.0], [7.0]], dtype=F64)
    case = Case([5], [3], [2], [0], [False])
    check([tails], case, [[x]], part, COUNT)


@task("22.7")
def test_each_sequence_moves_on_by_what_counts_of_it(part: ModuleType) -> None:
    """Of four sequences with three drafts each, none, one, two and all were accepted. The first has two
    tokens before them, the others one."""
    case = Case([5, 4, 4, 4], [3] * 4, [1, 2, 3, 4], [2, 0, 5, 3], [False] * 4)
    check(layers(6, seed=10), case, brought(17, seed=11), part, COUNT)


@task("22.7")
def test_drafts_may_follow_several_tokens(part: ModuleType) -> None:
    """What is left of a prompt counts whole; of the drafts after it, those that were accepted."""
    case = Case([6, 2, 5], [2, 1, 4], [2, 1, 3], [1, 3, 0], [False, False, True])
    own = layers(5, seed=20)
    for layer in own:
        layer.pool[0] = torch.nan  # the third one begins in it
    check(own, case, brought(13, seed=21), part, f"{COUNT} {FRESH}")


@task("22.7")
def test_those_without_drafts_and_those_that_failed_stay(part: ModuleType) -> None:
    """A chunk of a prompt, one that has failed, and rows of padding lie among what was kept."""
    case = Case([3, 4, 5, 5, 2], [0, 2, 2, 0, 1], [0, 2, 0, 1, 2], [4, 1, 0, 2, 5], [False] * 5)
    tokens = brought(19, seed=31, behind=4)
    check(layers(7, seed=30), case, tokens, part, f"{WAITS} {FAILED} {ROWS}")


@task("22.7")
def test_a_layer_computes_once(part: ModuleType) -> None:
    """However many sequences there are; and not at all if no state moves on."""
    for gained, calls in (([2, 1, 3], 1), ([0, 0, 0], 0)):
        start_script()
        own = layers(4, seed=40)
        case = Case([3, 4, 4], [2, 3, 3], gained, [1, 0, 2], [False] * 3)
        settle(part, case, own, brought(11, seed=41))
        for layer in own:
            what = f"calls of compute for the {layer.name}"
            expect_equal(len(layer.batches), calls, what, why=ONCE if calls else NOTHING)
    start_script()
    case = Case([1, 3], [0, 0], [1, 0], [1, 0], [False] * 2)
    own = layers(4, seed=42)
    settle(part, case, own, brought(4, seed=43))
    expect(
        not any(layer.batches for layer in own), "a step without drafts was computed", why=NOTHING
    )


class Away:
    """A device whose numbers the host cannot see: PyTorch's `meta`, which knows shapes alone."""

    def __init__(self, num_layers: int) -> None:
        self.uploads = 0
        self.rows: list[int] = []
        tokens = [torch.empty(400, 3, device="meta"), torch.empty(400, 2, 2, device="meta")]
        self.kept = [Kept(self._compute, tokens) for _ in range(num_layers)]

    def _compute(self, x: Tensor, y: Tensor, batch: StateBatch) -> Tensor:
        expect_equal(len(x), len(y), "rows of two tensors of one layer")
        expect_equal(sum(batch.lens), len(x), "rows that batch.lens counts, and rows of tokens")
        self.rows.append(len(x))
        return x

    def upload(self, array: NDArray[Any]) -> Tensor:
        self.uploads += 1
        return torch.from_numpy(array).to("meta")

    def settle(self, part: ModuleType, count: int) -> None:
        case = Case([4] * count, [3] * count, [2] * count, [*range(count)], [False] * count)
        try:
            part.settle(self.kept, case.verified(), self.upload)
        except (NotImplementedError, RuntimeError) as error:
            if "meta" not in str(error):
                raise
            raise Fault(f"settle makes the host wait: {error}", why=ON_DEVICE) from error


@task("22.7")
def test_the_host_goes_on_at_once(part: ModuleType) -> None:
    """What is on the device is not looked at; uploads and operations are as many for 2 sequences as for
    20, and uploads for 1 layer as for 8."""
    uploads = []
    for count, num_layers in ((2, 1), (20, 1), (2, 8)):
        start_script()
        note(f"settle, with {count} sequences and {num_layers} layers")
        device = Away(num_layers)
        device.settle(part, count)
        expect_equal(
            device.rows, [2 * count] * num_layers, "rows of each call of compute", why=COUNT
        )
        uploads.append(device.uploads)
    expect_equal(uploads[1], uploads[0], "uploads for 20 sequences, and for 2", why=UPLOADS)
    expect_equal(uploads[2], uploads[0], "uploads for 8 layers, and for 1", why=UPLOADS)

    def of(count: int) -> Callable[[], Any]:
        return lambda: Away(2).settle(part, count)

    expect_as_many(part, "settle", of(2), of(20), "2 sequences and with 20", UPLOADS)


@task("22.7")
def test_what_was_kept_is_settled_again(part: ModuleType) -> None:
    """The tensors are filled anew, as a replay does, and other drafts are accepted."""
    own, tokens = layers(3, seed=50), brought(8, seed=51)
    kept = [Kept(layer.compute, given_) for layer, given_ in zip(own, tokens, strict=True)]
    for turn, gained in enumerate(([2, 4], [3, 1])):
        for old, new in zip(tokens, brought(8, seed=52 + turn), strict=True):
            for one, other in zip(old, new, strict=True):
                one.copy_(other)
        case = Case([4, 4], [3, 3], gained, [2, 0], [False] * 2)
        right = [
            after(case, layer, given_, case.spans(case.counts))
            for layer, given_ in zip(own, tokens, strict=True)
        ]
        before = [[one.clone() for one in given_] for given_ in tokens]
        note(f"settle(kept, {case.told()})")
        part.settle(kept, case.verified(), upload)
        expect_equal(len(kept), 2, "entries of kept after the call", why=AGAIN)
        for layer, exact, given_, old in zip(own, right, tokens, before, strict=True):
            got = layer.pool[index(case.slots)]
            expect_values(got, exact, f"the {layer.name}", tolerance=EXACT, why=AGAIN)
            for one, was in zip(given_, old, strict=True):
                expect_values(one, was, "a tensor of kept", tolerance=0.0, why=AGAIN)


@task("22.7")
def test_what_was_kept_is_given_up(part: ModuleType) -> None:
    """After the call the part holds none of it."""

    def call() -> None:
        case = Case([3, 2], [2, 1], [2, 2], [1, 0], [False] * 2)
        own, tokens = layers(2, seed=60), brought(5, seed=61)
        kept = [Kept(layer.compute, given_) for layer, given_ in zip(own, tokens, strict=True)]
        part.settle(kept, case.verified(), upload)

    expect_nothing_is_kept({"settle": call})


ROW = st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 4), st.booleans())


@task("22.7")
@examples(60)
@given(st.lists(ROW, min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 999))
def test_any_step(
    part: ModuleType, rows: list[tuple[int, int, int, bool]], behind: int, seed: int
) -> None:
    """Any numbers of tokens, drafts and accepted ones."""
    lens = [own + drafts for own, drafts, _, _ in rows]
    gained = [min(got, drafts + 1) for _, drafts, got, _ in rows]
    slots = np.random.default_rng(seed).permutation(len(rows) + 2)[: len(rows)].tolist()
    case = Case(lens, [row[1] for row in rows], gained, slots, [row[3] for row in rows])
    own = layers(len(rows) + 2, seed)
    for slot, fresh in zip(slots, case.fresh, strict=True):
        if fresh:
            for layer in own:
                layer.pool[slot] = torch.nan
    check(own, case, brought(sum(lens), seed + 7, behind), part, f"{COUNT} {EACH}")


TURN = st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 4))


@task("22.7")
@examples(25)
@given(st.lists(st.lists(TURN, min_size=3, max_size=3), min_size=1, max_size=4), st.integers(0, 99))
def test_any_script_of_steps(
    part: ModuleType, turns: list[list[tuple[int, int, int]]], seed: int
) -> None:
    """Three sequences, step after step: their states are those after the tokens that counted."""
    own, slots, nobody = layers(5, seed), [3, 0, 2], 4
    for layer in own:
        layer.pool.fill_(torch.nan)
    texts: list[list[list[Tensor]]] = [[[], [], []] for _ in own]
    computed = [0] * 3
    for number, turn in enumerate(turns):
        lens = [n + drafts for n, drafts, _ in turn]
        drafts = [one[1] for one in turn]
        gained = [
            min(got, most + 1) for most, got in zip(drafts, (one[2] for one in turn), strict=True)
        ]
        case = Case(lens, drafts, gained, slots, [not n for n in computed])
        tokens = brought(sum(lens), seed + 10 * number)
        starts = torch.tensor([0, *lens]).cumsum(0).int()
        batch = StateBatch(lens, starts, index(slots), torch.tensor(case.fresh))
        back = index([slot if n else nobody for slot, n in zip(slots, drafts, strict=True)])
        note(f"a step: {case.told()}")
        for layer, given_ in zip(own, tokens, strict=True):
            part.run_ahead(partial(layer.compute, *given_, batch), layer.pool, index(slots), back)
        settle(part, case, own, tokens)
        counts = [n if most else length for n, most, length in
                  zip(case.counts, drafts, lens, strict=True)]  # fmt: skip
        computed = [old + n for old, n in zip(computed, counts, strict=True)]
        for layer, given_, text in zip(own, tokens, texts, strict=True):
            for at, (span, slot) in enumerate(zip(case.spans(counts), slots, strict=True)):
                piece = [one[slice(*span)] for one in given_]
                old = text[at] or [one[:0] for one in given_]
                text[at] = [torch.cat(pair) for pair in zip(old, piece, strict=True)]
                if not computed[at]:
                    continue
                whole = (0, computed[at])
                exact = layer.moved(text[at], whole, torch.zeros_like(layer.pool[slot]), True)
                what = f"the {layer.name} of sequence {at} after {computed[at]} tokens"
                expect_values(layer.pool[slot], exact, what, tolerance=EXACT, why=WAITS)
