"""Task 3.4, slots: where the tokens of a step lie in the pool."""

from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

from grader.kit import (
    examples,
    expect,
    expect_close,
    expect_equal,
    note,
    quietly,
    start_script,
    task,
    watch,
)
from grader.kit.mistakes import told_by
from grader.suites.paged_cache.pool_view import PoolDesk, rows

NEXT_ENTRY = (
    "A table's blocks lie anywhere in the pool: at each border the next entry says where. Token p is "
    "row p % block_size of block table[p // block_size]."
)
OWN_TABLE = (
    "A token is looked up in the table of its own row; tokens of a row need not be adjacent."
)
ON_DEVICE = (
    "The tables lie on the device, and the step is computed there: index tensors with tensors. A loop "
    "over tokens, or a value taken out, waits for the device in every step."
)
WIDE = (
    "`write` indexes with int64, since a slot may have a number beyond 32 bits. Widen the block numbers "
    "(`long`) before you multiply them."
)


def make_pool(part: ModuleType, size: int, num_blocks: int = 8) -> Any:
    """A pool without layers, since slots need none, and a script that begins with it."""
    start_script()
    note(f"pool = KVPool([], num_blocks={num_blocks}, block_size={size})")
    pool = part.KVPool([], num_blocks, size, torch.float32, torch.device("cpu"))
    return watch(pool, "pool")


def ask(pool: Any, tables: list[list[int]], tokens: list[tuple[int, int]]) -> Tensor:
    """The slots of tokens that are given as (row, position)."""
    pairs = torch.tensor(tokens, dtype=torch.int64).reshape(-1, 2)
    slots = pool.slot_mapping(torch.tensor(tables, dtype=torch.int32), pairs[:, 0], pairs[:, 1])
    expect(isinstance(slots, Tensor), f"slot_mapping returned {type(slots).__name__}, not a tensor")
    return slots


def in_words(tables: list[list[int]], tokens: list[tuple[int, int]], size: int) -> list[int]:
    """What slot_mapping must say."""
    return [tables[row][p // size] * size + p % size for row, p in tokens]


@task("3.4")
def test_slots_follow_the_table(part: ModuleType) -> None:
    """Token p has its slot in block table[p // block_size], row p % block_size."""
    table = [5, 1, 6]
    got = ask(make_pool(part, 4), [table], [(0, p) for p in range(2, 10)])
    slots = [22, 23, 4, 5, 6, 7, 24, 25]
    what = f"slots of tokens 2 to 9 with the table {table} and blocks of four"
    tokens = range(2, 10)
    why = told_by(
        got.tolist(),
        {
            "Each token has the first row of its block here: p % block_size is not added.": [
                table[p // 4] * 4 for p in tokens
            ],
            "The blocks are not multiplied by block_size here: each begins block_size slots behind the "
            "one before it in the pool.": [table[p // 4] + p % 4 for p in tokens],
            "The slots count on from the table's first block here. Its blocks lie anywhere in the pool: "
            "at each border the next entry says where.": [table[0] * 4 + p for p in tokens],
            "The row is the whole position here, not p % block_size.": [
                table[p // 4] * 4 + p for p in tokens
            ],
        },
    )
    expect_equal(got.tolist(), slots, what, why=why)


@task("3.4")
def test_each_token_is_looked_up_in_its_own_table(part: ModuleType) -> None:
    """Tokens of several requests come in any order; rows says which request each belongs to."""
    tables = [[5, 1, 6], [2, 0, 7], [3, 4, 0]]
    tokens = [(2, 7), (0, 3), (1, 8), (0, 4), (2, 0), (1, 9), (1, 3)]
    got = ask(make_pool(part, 4), tables, tokens)
    what = f"slots of the tokens (row, position) {tokens} with the tables {tables}"
    first = [(0, position) for _, position in tokens]
    told = "Every token was looked up in table 0. `rows` says which table is its own."
    why = told_by(got.tolist(), {told: in_words(tables, first, 4)}) or OWN_TABLE
    expect_equal(got.tolist(), in_words(tables, tokens, 4), what, why=why)


@task("3.4")
def test_slots_are_int64(part: ModuleType) -> None:
    """slot_mapping returns an int64 tensor, though the tables are int32."""
    got = ask(make_pool(part, 4), [[5, 1]], [(0, 3), (0, 4)])
    expect_equal(got.dtype, torch.int64, "the dtype of the slots", why=WIDE)


TAKES_OUT = {"tolist", "item", "numpy", "nonzero", "__iter__", "__int__", "__index__", "__bool__"}


class Asked(TorchFunctionMode):
    """names: what torch was asked for, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def asked(pool: Any, count: int) -> list[str]:
    """What slot_mapping asks of torch for so many tokens of two requests."""
    tables = torch.arange(8, dtype=torch.int32).view(2, 4)
    owners, positions = torch.arange(count) % 2, torch.arange(count) % 16
    note(f"pool.slot_mapping(two tables of 4 blocks, rows and positions of {count} tokens)")
    with Asked() as mode:
        quietly(pool).slot_mapping(tables, owners, positions)
    return mode.names


@task("3.4")
def test_slots_cost_the_same_for_one_token_and_for_many(part: ModuleType) -> None:
    """slot_mapping calls torch as often for 400 tokens as for 4: there is no loop over tokens."""
    pool = make_pool(part, 4)
    few, many = len(asked(pool, 4)), len(asked(pool, 400))
    expect(
        many == few,
        f"{few} calls into torch for 4 tokens, {many} for 400: one expression for all tokens is wanted",
        why=ON_DEVICE,
    )


@task("3.4")
def test_slots_are_computed_without_taking_values_out(part: ModuleType) -> None:
    """slot_mapping stays on the device: it makes no list or number of a tensor."""
    taken = sorted(TAKES_OUT.intersection(asked(make_pool(part, 4), 4)))
    expect_equal(taken, [], "calls that fetch values from the device", why=ON_DEVICE)


@task("3.4")
def test_shorter_tables_are_filled_up(part: ModuleType) -> None:
    """The tables are as wide as the longest one; what fills up a shorter one is never used."""
    tables = [[5, -1, -1], [2, 0, 7]]
    tokens = [(0, 1), (1, 8), (0, 2)]
    got = ask(make_pool(part, 4), tables, tokens)
    what = f"slots of the tokens (row, position) {tokens} with the tables {tables}"
    expect_equal(got.tolist(), in_words(tables, tokens, 4), what, why=OWN_TABLE)


@task("3.4")
def test_a_step_without_tokens_has_no_slots(part: ModuleType) -> None:
    """For no tokens slot_mapping returns an int64 tensor of shape [0]."""
    got = ask(make_pool(part, 4), [[5, 1]], [])
    expect_equal(list(got.shape), [0], "the shape of the slots of no tokens")
    expect_equal(got.dtype, torch.int64, "the dtype of the slots of no tokens", why=WIDE)


@task("3.4")
def test_slots_beyond_32_bits(part: ModuleType) -> None:
    """A slot may have a number beyond 32 bits, though block numbers have 32 bits."""
    far = 200_000_000
    tokens = [(0, 15), (0, 16), (1, 16)]
    got = ask(make_pool(part, 16, num_blocks=far + 1), [[far, 1], [1, far]], tokens)
    why = "The product does not fit into 32 bits: widen the numbers before you multiply them."
    right = [16 * far + 15, 16, 16 * far]
    expect_equal(got.tolist(), right, f"slots in blocks {far} and 1 of two tables", why=why)


@task("3.4")
def test_what_is_written_to_its_slots_is_gathered_in_order(part: ModuleType) -> None:
    """write to a table's slots and gather through the table agree on where a token is."""
    desk = PoolDesk(part)
    table = [[4, 1, 3]]
    slots = ask(desk.pool, table, [(0, position) for position in range(5)])
    k, v = rows(0, [1, 2, 3, 4, 5])
    desk.pool.write(0, k, v, slots)
    for name, got, new in zip("KV", desk.pool.gather(0, torch.tensor(table)), (k, v), strict=True):
        expect_close(got[0, :5], new, f"{name} of tokens 0 to 4 through the table", why=NEXT_ENTRY)


@task("3.4")
def test_any_tables_and_tokens(part: ModuleType) -> None:
    """Whatever the tables, the block size and the order of the tokens, each has its own slot."""

    @examples(40)
    @given(data=st.data(), size=st.integers(1, 5), width=st.integers(1, 4))
    def check(data: st.DataObject, size: int, width: int) -> None:
        entry = st.integers(0, 7)
        table = st.lists(entry, min_size=width, max_size=width)
        tables = data.draw(st.lists(table, min_size=1, max_size=4))
        token = st.tuples(st.integers(0, len(tables) - 1), st.integers(0, width * size - 1))
        tokens = data.draw(st.lists(token, max_size=6))
        got = ask(make_pool(part, size), tables, tokens)
        what = f"slots of {tokens}, blocks of {size}, tables {tables}"
        expect_equal(got.tolist(), in_words(tables, tokens, size), what, why=NEXT_ENTRY)

    check()
