"""Task 22.4: slots of fixed size, and what is read from them and written."""

from itertools import chain
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_equal, note, start_script, task
from grader.kit.storage import expect_calls_apart, expect_nothing_is_kept
from grader.suites.state_cache.operations import (
    expect_as_many,
    expect_as_much,
    expect_no_reads,
)
from grader.suites.state_cache.rules import BF16, F32, F64, drawn, expect_values
from yaie.core.contracts.states import StateLayerSpec, StateTensor

CPU = torch.device("cpu")
LAYERS: list[StateLayerSpec] = [
    (StateTensor((5, 2), BF16), StateTensor((2, 3, 7), F32)),
    (StateTensor((5, 2), BF16),),
    (StateTensor((3, 3), F32), StateTensor((1,), F32)),
]
OWN = (
    "Each layer has numbers of its own in each slot, as each layer has keys and values of its own."
)
PIECE = (
    "A slot's tensors are packed, and each begins at a multiple of 16 numbers: kernels then read them "
    "with wide loads."
)
WHOLE = "A copy is of all that a slot holds: every tensor of every layer, in each dtype."
AT_ONCE = (
    "All sources are read before a target is written. One after the other, slot 2 would get what slot 1 "
    "has just been given."
)
APART = (
    "A copy is of numbers. Two requests on one slot would write into each other's state, and unlike "
    "keys and values a state is changed by every token."
)
FRESH = (
    "A slot keeps what the request before has left in it, which may be NaN, and 0 times NaN is NaN: put "
    "zeros in its place (masked_fill, torch.where)."
)
ALL_FRESH = (
    "All rows are zeros, and rows 1 and 3 are not fresh. Row i goes by its own flag, is_fresh[i]."
)
COPY = "The rule works on what is read; the slot changes when it is written."
MINE = (
    "Row i goes to slot slots[i]; a slot that the batch does not name belongs to another request."
)
PADDING = (
    "Rows of padding share a slot that no sequence has. Whatever comes of them goes there, and nowhere "
    "else."
)
ROOM = (
    "Each tensor's length is rounded up to a multiple of 16 numbers, and no further: what lies between "
    "tensors is copied too."
)
TOUCHED = (
    "A pool holds the states of hundreds of requests, some megabytes each. Choose the rows first "
    "(tensor[slots], index_copy_); convert, copy and write these alone."
)
CALLS = (
    "A step copies slots before and after its layers. If a slot's tensors of one dtype lie in one "
    "piece, over all layers, one operation for each dtype copies them."
)


def make(part: ModuleType, num_slots: int = 6, layers: Any = None) -> Any:
    start_script()
    note(f"pool = StatePool(layers, {num_slots}, device)")
    return part.StatePool(LAYERS if layers is None else layers, num_slots, CPU)


def tensors(pool: Any) -> list[Tensor]:
    return list(chain(*pool.layers))


def fill(pool: Any) -> list[Tensor]:
    """Each tensor with numbers of its own, which are returned."""
    right = []
    for number, one in enumerate(tensors(pool)):
        right.append(drawn(*one.shape, seed=number, dtype=F32).to(one.dtype))
        one.copy_(right[-1])
    return right


def index(*slots: int) -> Tensor:
    return torch.tensor(slots, dtype=torch.int64)


def expect_slots(
    pool: Any,
    right: list[Tensor],
    what: str,
    why: str,
    kinds: dict[str, list[Tensor]] | None = None,
) -> None:
    """kinds: what mistakes would give, of each tensor."""
    for number, (got, exact) in enumerate(zip(tensors(pool), right, strict=True)):
        told = f"tensor {number} of the pool {what}"
        own = {words: lambda t=made[number]: t for words, made in (kinds or {}).items()}
        expect_values(got, exact, told, tolerance=0.0, why=why, kinds=own)


@task("22.4")
def test_each_layer_has_its_tensors(part: ModuleType) -> None:
    """[num_slots, *shape] in the dtype that the layer asks for, zeros at first."""
    pool = make(part)
    expect_equal(len(pool.layers), 3, "layers of the pool")
    for number, (layer, spec) in enumerate(zip(pool.layers, LAYERS, strict=True)):
        expect_equal(len(layer), len(spec), f"tensors of layer {number}")
        for one, wanted in zip(layer, spec, strict=True):
            expect_equal(list(one.shape), [6, *wanted.shape], f"a shape in layer {number}")
            expect_equal(
                one.dtype, wanted.dtype, f"a dtype in layer {number}", why="As it is asked for."
            )
            expect(not bool(one.any()), f"a tensor of layer {number} does not begin as zeros")


@task("22.4")
def test_no_two_share_a_number(part: ModuleType) -> None:
    """What is written to one layer's slot shows nowhere else."""
    pool = make(part)
    right = fill(pool)
    expect_slots(pool, right, "after each was filled", OWN)
    many = make(part, 2, [(StateTensor((1,), F32),)] * 1100)
    expect_equal(len(many.layers), 1100, "layers of a pool of 1,100")
    fill(many)
    last = many.layers[-1][0]
    expect(not torch.equal(last, many.layers[-2][0]), "the last two layers are alike", why=OWN)


@task("22.4")
def test_a_slot_is_packed_and_aligned(part: ModuleType) -> None:
    """What a tensor holds of one slot is contiguous, begins at a multiple of 16 numbers, and ends
    before the next multiple."""
    pool = make(part)
    for number, one in enumerate(tensors(pool)):
        expect(one[0].is_contiguous(), f"tensor {number}: strides {list(one.stride())}", why=PIECE)
        for slot in range(6):
            what = f"numbers past a multiple, slot {slot} of tensor {number}"
            expect_equal(one[slot].storage_offset() % 16, 0, what, why=PIECE)
            what = f"bytes past a multiple, slot {slot} of tensor {number}"
            expect_equal(one[slot].data_ptr() % 16, 0, what, why=PIECE)
    pieces = {one.untyped_storage().data_ptr(): one.untyped_storage() for one in tensors(pool)}
    taken = sum(piece.nbytes() for piece in pieces.values())
    most = 6 * sum(one.num_bytes + 128 for one in chain(*LAYERS))
    expect(taken <= most, f"6 slots take {taken:,} bytes, where {most:,} are plenty", why=ROOM)


@task("22.4")
def test_a_slot_is_copied_whole_and_alone(part: ModuleType) -> None:
    """Every tensor of two slots, to two others; all other slots stay."""
    pool = make(part)
    right = fill(pool)
    note("pool.copy(torch.tensor([0, 3]), torch.tensor([5, 1]))")
    pool.copy(index(0, 3), index(5, 1))
    exchanged, before = ([one.clone() for one in right] for _ in range(2))
    for one, other in zip(right, exchanged, strict=True):
        one[[5, 1]] = one[[0, 3]]
        other[[0, 3]] = other[[5, 1]]
    kinds = {
        "Sources and targets are exchanged: slots 0 and 3 have got what 5 and 1 held, and 5 and 1 are "
        "as they were.": exchanged
    }
    why = why_not_copied(pool, right, before) or WHOLE
    expect_slots(pool, right, "after slots 0 and 3 were copied to 5 and 1", why, kinds)


def why_not_copied(pool: Any, right: list[Tensor], before: list[Tensor]) -> str:
    """Which tensors a copy has left out, if all others are right; "" if it has left out none, or all."""
    named = [f"tensor {number} of layer {layer}" for layer, own in enumerate(LAYERS)
             for number in range(len(own))]  # fmt: skip
    got = tensors(pool)
    kept = [
        name for name, one, old in zip(named, got, before, strict=True) if torch.equal(one, old)
    ]
    done = [name for name, one, new in zip(named, got, right, strict=True) if torch.equal(one, new)]
    if not kept or not done or len(kept) + len(done) < len(named):
        return ""
    return f"Copied: {', '.join(done)}. Not copied: {', '.join(kept)}."


@task("22.4")
def test_all_sources_are_read_first(part: ModuleType) -> None:
    """Slots 0 to 3, each to the next one, and two that change places."""
    for sources, targets in (((0, 1, 2, 3), (1, 2, 3, 4)), ((2, 5), (5, 2))):
        pool = make(part)
        right = fill(pool)
        note(f"pool.copy({sources}, {targets})")
        pool.copy(index(*sources), index(*targets))
        for one in right:
            one[list(targets)] = one[list(sources)]
        expect_slots(pool, right, f"after {sources} were copied to {targets}", AT_ONCE)


@task("22.4")
def test_what_is_written_replaces_what_was_there(part: ModuleType) -> None:
    """Slots hold 1, 2 and 3; 10 is written to slot 1."""
    start_script()
    tensor = torch.tensor([[1.0], [2.0], [3.0]])
    note("write_states(torch.tensor([[1.0], [2.0], [3.0]]), slots=[1], states=[[10.0]])")
    part.write_states(tensor, index(1), torch.tensor([[10.0]]))
    kinds = {
        "Slot 1 holds 12, the sum of what was there and of what was written: a write replaces.":
            lambda: torch.tensor([[1.0], [12.0], [3.0]]),
        f"Nothing was written to the tensor that was given. {MINE}":
            lambda: torch.tensor([[1.0], [2.0], [3.0]]),
    }  # fmt: skip
    right = torch.tensor([[1.0], [10.0], [3.0]])
    expect_values(tensor, right, "the slots after it", tolerance=0.0, why=MINE, kinds=kinds)


@task("22.4")
def test_a_copy_lives_on_its_own(part: ModuleType) -> None:
    """After a fork each of the two writes what the other does not see, in the tensors there were."""
    pool = make(part)
    right, held = fill(pool), tensors(pool)
    pool.copy(index(0), index(4))
    for number, (one, exact) in enumerate(zip(held, right, strict=True)):
        exact[4] = exact[0]
        for slot in (0, 4):
            state = drawn(1, *one.shape[1:], seed=70 + 10 * number + slot, dtype=F32).to(one.dtype)
            part.write_states(one, index(slot), state)
            exact[slot] = state[0]
    what = "after slot 0 was copied to 4 and both were written"
    expect_slots(pool, right, what, f"{APART} {MINE}")


@task("22.4")
def test_a_copy_is_one_operation_for_each_dtype(part: ModuleType) -> None:
    """As many operations for eight layers and five slots as for two and one, on these slots alone."""

    def of(layers: int, slots: int, num_slots: int = 12) -> Any:
        pool = make(part, num_slots, [LAYERS[0]] * layers)
        sources, targets = torch.arange(slots), torch.arange(slots) + 6
        return lambda: pool.copy(sources, targets)

    expect_no_reads(of(2, 2), "copy")
    expect_as_many(part, "copy", of(2, 1), of(8, 1), "2 layers and with 8", CALLS)
    expect_as_many(part, "copy", of(2, 1), of(2, 5), "1 slot and with 5", CALLS)
    few, many = of(2, 2, 9), of(2, 2, 90)
    expect_as_many(part, "copy", few, many, "2 of 9 slots and of 90", TOUCHED)
    expect_as_much(part, "copy", few, many, "2 of 9 slots and of 90", TOUCHED)


@task("22.4")
def test_a_fresh_sequence_reads_zeros(part: ModuleType) -> None:
    """Whatever lies in its slot; the others read what theirs hold, in the order of the batch."""
    tensor = drawn(5, 3, 4, seed=1, dtype=F32)
    tensor[[1, 4]] = torch.nan
    tensor[3] = torch.inf
    fresh = torch.tensor([True, False, True, False])
    note("read_states(tensor, slots=[4, 2, 3, 0], is_fresh=[True, False, True, False], dtype)")
    got = part.read_states(tensor, index(4, 2, 3, 0), fresh, F32)
    right = torch.stack([torch.zeros(3, 4), tensor[2], torch.zeros(3, 4), tensor[0]])
    kinds = {ALL_FRESH: lambda: torch.zeros(4, 3, 4)}
    expect_values(got, right, "what was read", dtype=F32, tolerance=0.0, why=FRESH, kinds=kinds)


@task("22.4")
def test_states_are_read_wide(part: ModuleType) -> None:
    """In float32, whatever the tensor and the model have, and in float64 where the model has that."""
    for stored, model, wanted in ((BF16, BF16, F32), (F32, BF16, F32), (F32, F64, F64)):
        tensor = drawn(4, 3, seed=2, dtype=F32).to(stored)
        note(f"read_states of {stored} for {model}")
        got = part.read_states(tensor, index(3, 1), torch.tensor([False, False]), model)
        what = f"what was read of {stored} for a model of {model}"
        expect_values(
            got, tensor[[3, 1]], what, dtype=wanted, tolerance=0.0, why="States are wide."
        )

    def of(num_slots: int) -> Any:
        tensor, fresh = torch.zeros(num_slots, 50, dtype=BF16), torch.tensor([True, False])
        return lambda: part.read_states(tensor, index(3, 1), fresh, F32)

    told = "2 of 9 slots and of 90"
    expect_as_much(part, "read_states", of(9), of(90), told, TOUCHED)


@task("22.4")
def test_what_is_read_is_a_copy(part: ModuleType) -> None:
    """Reading changes no slot, not a fresh one's either, and what is done to it afterwards neither."""
    tensor = drawn(4, 3, 2, seed=3, dtype=F32)
    before, given = tensor.clone(), (index(0, 1), torch.tensor([True, False]))
    slots, fresh = given[0].clone(), given[1].clone()
    states = part.read_states(tensor, *given, F32)
    expect_values(tensor, before, "the pool after a read", tolerance=0.0, why=COPY)
    states += 1
    expect_values(
        tensor, before, "the pool after a change of what was read", tolerance=0.0, why=COPY
    )
    expect(
        torch.equal(given[0], slots) and torch.equal(given[1], fresh), "slots or is_fresh changed"
    )
    part.write_states(tensor, index(0, 1), states)
    states += 1
    right = before.clone()
    right[0], right[1] = 1.0, before[1] + 1
    expect_values(tensor, right, "the pool after a write", tolerance=1e-6, why=COPY)

    def read(seed: int) -> Any:
        fresh = torch.tensor([seed % 2 == 0, False])
        return part.read_states(drawn(4, 3, seed=seed, dtype=F32), index(seed, 0), fresh, F32)

    expect_calls_apart({"read_states": read})
    pool = make(part)
    expect_nothing_is_kept(
        {
            "write_states": lambda: part.write_states(torch.ones(4, 3), index(1), torch.ones(1, 3)),
            "copy": lambda: pool.copy(index(0, 1), index(2, 3)),
        }
    )


@task("22.4")
def test_states_go_to_their_slots_alone(part: ModuleType) -> None:
    """In the tensor's dtype, rows of padding to the one slot that no sequence has."""
    for dtype in (F32, BF16):
        tensor = drawn(7, 3, seed=4, dtype=F32).to(dtype)
        right, states = tensor.clone(), drawn(4, 3, seed=5, dtype=F32)
        states[2:] = torch.nan
        note(
            f"write_states(tensor [7, 3] {dtype}, slots=[5, 2, 6, 6], states): two rows of padding"
        )
        part.write_states(tensor, index(5, 2, 6, 6), states)
        right[5], right[2] = states[0].to(dtype), states[1].to(dtype)
        expect_values(
            tensor[:6], right[:6], "the slots of sequences", tolerance=0.0, why=f"{MINE} {PADDING}"
        )

    def of(rows: int) -> Any:
        tensor, slots = torch.zeros(30, 3), torch.arange(rows)
        states, fresh = torch.ones(rows, 3), torch.zeros(rows, dtype=torch.bool)

        def call() -> None:
            part.read_states(tensor, slots, fresh, F32)
            part.write_states(tensor, slots, states)

        return call

    expect_no_reads(of(3), "read_states or write_states")
    expect_as_many(
        part, "read_states and write_states", of(2), of(20), "2 sequences and with 20", MINE
    )

    def among(num_slots: int) -> Any:
        tensor, states = torch.zeros(num_slots, 50, dtype=BF16), torch.ones(2, 50)
        return lambda: part.write_states(tensor, index(3, 1), states)

    told = "2 of 9 slots and of 90"
    expect_as_much(part, "write_states", among(9), among(90), told, TOUCHED)


SEATS = st.integers(0, 4)
DEEDS = st.lists(
    st.tuples(st.sampled_from(["begin", "go on", "fork"]), SEATS, SEATS), min_size=1, max_size=12
)


@task("22.4")
@examples(40)
@given(DEEDS)
def test_any_script_of_seats(part: ModuleType, deeds: list[tuple[str, int, int]]) -> None:
    """However sequences begin, go on and fork, each goes on from what it has left itself."""
    pool = make(part, 6)
    (tensor,) = pool.layers[1]
    model = [torch.zeros(5, 2, dtype=F32) for _ in range(6)]
    for number, (deed, seat, other) in enumerate(deeds):
        note(f"{deed}: seat {seat}" + (f" from seat {other}" if deed == "fork" else ""))
        if deed == "fork":
            pool.copy(index(other), index(seat))
            model[seat] = model[other].clone()
            continue
        fresh = torch.tensor([deed == "begin", False])
        states = part.read_states(tensor, index(seat, 5), fresh, BF16)
        before = torch.zeros(5, 2) if deed == "begin" else model[seat]
        expect_values(states[0], before, f"what seat {seat} reads", tolerance=0.0, why=FRESH)
        model[seat] = (states[0] + number + 1).to(BF16).float()
        part.write_states(tensor, index(seat, 5), states + number + 1)
    for seat in range(5):
        expect_values(
            tensor[seat], model[seat], f"seat {seat} at the end", tolerance=0.0, why=APART
        )
