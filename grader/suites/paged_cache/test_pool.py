"""Task 3.4: the memory behind the block numbers."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_close, expect_equal, quietly, task
from grader.kit.mistakes import told_by
from grader.suites.paged_cache.pool_view import BLOCKS, HOST, LAYERS, SIZE, SLOTS, PoolDesk, rows

BOTH = "Every layer has its own K and V, and a block number means the same block in all of them."
ORDERS: list[list[int]] = [[4, 6, 5, 7], [3, 1], [2], []]
"""Slots of a few writes."""
READ_FIRST = (
    "A pair's source may be another pair's target: read every block before the first is written, or "
    "the new content is copied on."
)


@task("3.4")
def test_write_puts_each_token_in_its_slot(part: ModuleType) -> None:
    """A token's K and V go to its slot in the layer that was named, and touch nothing else."""
    desk = PoolDesk(part)
    desk.write(0, [3, 8, 0])
    desk.compare("Slot 3 is row 1 of block 1 when blocks have two slots.")
    desk.write(2, [9])
    desk.write(0, [8])
    desk.compare("Only the slots of the mapping change, in that layer alone.")


@task("3.4")
def test_write_goes_by_each_slot(part: ModuleType) -> None:
    """Slots come in any order, and there may be none: two of them say nothing of the others."""
    desk = PoolDesk(part)
    for slots in ORDERS:
        desk.write(0, slots)
        desk.compare(f"Token i goes to slot i of the mapping, here {slots}.")


@task("3.4")
def test_write_takes_rows_that_are_views(part: ModuleType) -> None:
    """K and V may be views of a larger tensor, as a fused projection gives them."""
    desk = PoolDesk(part)
    k, v = rows(0, [1, 2, 3])
    fused = torch.stack([k, v], dim=2)  # [T, kv_heads, 2, head_dim]
    slots = torch.tensor([2, 5, 9])
    desk.pool.write(0, fused[:, :, 0], fused[:, :, 1], slots)
    for name, stored, new in zip("KV", quietly(desk.pool).blocks(0), (k, v), strict=True):
        got = stored[slots // SIZE, slots % SIZE]
        expect_close(got, new, f"{name} in slots 2, 5 and 9", why="The rows are not contiguous.")


@task("3.4")
def test_gather_joins_the_blocks_of_each_table(part: ModuleType) -> None:
    """Row i of gather is the content of table i's blocks, one after another in the table's order."""
    desk = PoolDesk(part)
    desk.fill()
    order = "The table's order is the order of the tokens; the order in memory means nothing."
    for dtype in (torch.int64, torch.int32):
        tables = torch.tensor([[4, 1, 1], [0, 2, 4]], dtype=dtype)
        for layer, content in enumerate(desk.device):
            gathered = desk.pool.gather(layer, tables)
            for name, got, stored, other in zip(
                "KV", gathered, content, reversed(content), strict=True
            ):
                blocks = tables.long()
                gives = {
                    order: stored[blocks.sort(dim=1).values],
                    f"{order} (Here each table came out backwards.)": stored[blocks.flip(1)],
                    "K and V are exchanged here.": other[blocks],
                    "Every row here is the first table's.": stored[blocks[:1].expand_as(blocks)],
                }
                for number, (k, v) in enumerate(desk.device):
                    there = k if name == "K" else v
                    told = f"This is {name} of layer {number}: every layer has its own K and V."
                    gives[told] = there[blocks]
                expected = stored[blocks].flatten(1, 2)
                what = f"gathered {name} of layer {layer} [table, token, head, dim]"
                why = told_by(got, {told: x.flatten(1, 2) for told, x in gives.items()}, expected)
                expect_close(got, expected, what, why=why)


@task("3.4")
def test_gather_reads_what_is_there_now(part: ModuleType) -> None:
    """The same tables give what the blocks hold at each call, and stay as they are."""
    desk = PoolDesk(part)
    desk.fill()
    tables = torch.tensor([[4, 1], [0, 4]], dtype=torch.int32)
    before = tables.clone()
    for _ in range(2):
        for name, got, stored in zip(
            "KV", desk.pool.gather(0, tables), desk.device[0], strict=True
        ):
            right = stored[before.long()].flatten(1, 2)
            why = "Blocks are written between two steps: what was gathered before is not their content."
            expect_close(got, right, f"gathered {name} of layer 0", why=why)
        expect_equal(
            tables.tolist(),
            before.tolist(),
            "the tables after gather",
            why="They are the caller's.",
        )
        desk.write(0, [8, 2, 3])


@task("3.4")
def test_gather_gives_copies(part: ModuleType) -> None:
    """What gather returns is the caller's: changing it leaves the pool as it is."""
    desk = PoolDesk(part)
    desk.fill()
    for table in ([[0, 1]], [[0], [1]], [[2]], [list(range(BLOCKS))]):
        for gathered in desk.pool.gather(0, torch.tensor(table)):
            gathered.fill_(-1.0)
    desk.compare("A view of the pool would let attention overwrite the cache.")


@task("3.4")
def test_copying_reaches_every_layer(part: ModuleType) -> None:
    """copy_blocks copies K and V of every layer, and one block may go to several."""
    desk = PoolDesk(part)
    desk.fill()
    desk.move("copy_blocks", [(0, 4), (1, 3), (0, 2)])
    desk.compare(BOTH)


@task("3.4")
def test_copies_read_before_any_of_them_writes(part: ModuleType) -> None:
    """Pairs that form a circle exchange their blocks, whatever the order of the pairs."""
    for pairs in ([(0, 1), (1, 2), (2, 0)], [(2, 0), (1, 2), (0, 1)]):
        desk = PoolDesk(part)
        desk.fill()
        desk.move("copy_blocks", pairs)
        desk.compare(READ_FIRST)


@task("3.4")
def test_swapped_blocks_come_back(part: ModuleType) -> None:
    """A block's content goes to its partner on the host, and from there to any device block."""
    desk = PoolDesk(part)
    desk.fill()
    desk.move("swap_out", [(2, 1), (1, 0)])
    desk.compare("swap_out only reads the device pool.")
    for layer in range(len(LAYERS)):
        desk.write(layer, list(range(3 * SIZE)))
    desk.move("swap_in", [(1, 0), (0, 2)])
    desk.compare("swap_out pairs are (device, host), swap_in pairs are (host, device). " + BOTH)


@task("3.4")
def test_no_pairs_move_nothing(part: ModuleType) -> None:
    """A step that moves no block passes empty lists."""
    desk = PoolDesk(part)
    desk.fill()
    for call in ("copy_blocks", "swap_out", "swap_in"):
        desk.move(call, [])
    desk.compare("Most steps move nothing.")


@task("3.4")
def test_content_keeps_the_precision_of_the_pool(part: ModuleType) -> None:
    """A bfloat16 pool stores and gathers bfloat16."""
    pool = part.KVPool(LAYERS, BLOCKS, SIZE, torch.bfloat16, torch.device("cpu"))
    k, v = (x.bfloat16() for x in rows(1, [1, 2]))
    pool.write(1, k, v, torch.tensor([4, 5]))
    keys, values = pool.gather(1, torch.tensor([[2]]))
    expect_close(keys, k[None], "gathered K")
    expect_close(values, v[None], "gathered V")
    expect_equal(pool.blocks(1)[0].dtype, torch.bfloat16, "the pool's dtype")
    expect(bool((pool.blocks(0)[0] == 0).all()), "a write to layer 1 changed layer 0")


STEP = st.one_of(
    st.tuples(
        st.just("write"),
        st.integers(0, len(LAYERS) - 1),
        st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=4, unique=True),
    ),
    *(
        st.tuples(
            st.just(call),
            st.just(0),
            st.lists(
                st.tuples(st.integers(0, here - 1), st.integers(0, there - 1)),
                max_size=3,
                unique_by=lambda pair: pair[1],
            ),
        )
        for call, here, there in (
            ("copy_blocks", BLOCKS, BLOCKS),
            ("swap_out", BLOCKS, HOST),
            ("swap_in", HOST, BLOCKS),
        )
    ),
)


@task("3.4")
def test_any_script_of_writes_and_moves(part: ModuleType) -> None:
    """After any writes and moves, every slot on the device and on the host holds what it must."""

    @examples(40)
    @given(steps=st.lists(STEP, max_size=8))
    def check(steps: list[tuple[str, int, list]]) -> None:
        desk = PoolDesk(part)
        for layer in range(len(LAYERS)):
            desk.write(layer, list(range(4)))
        for call, layer, what in steps:
            if call == "write":
                desk.write(layer, what)
            else:
                desk.move(call, what)
            desk.compare(f"{READ_FIRST} {BOTH}")
        desk.compare_host(BOTH)

    check()
