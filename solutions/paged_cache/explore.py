# %% [markdown]
# # Lab 3: memory in blocks
#
# Your `BlockManager`, `KVPool` and `KVCacheManager`, drawn through their public methods. A block
# holds four tokens here, so that a picture holds a pool.

# %%
import math

import torch

from yaie.core.batch import KVLayerSpec
from yaie.core.errors import OutOfBlocksError
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus
from yaie.explore import draw, load

parts = load("paged_cache")
part = parts["paged_cache"]
BLOCK_SIZE = 4
COLOURS = draw.colours("abcdef")


def pool_map(ax, manager, names, title):
    """A box for each block of the pool: who has it, and how many references it has if several."""
    holders = {block: [] for block in range(manager.num_blocks)}
    for name in names:
        for block in manager.get_physical_blocks(name):
            holders[block].append(name)
    draw.board(ax, manager.num_blocks, 1.5, title)
    for block, owners in holders.items():
        for i, name in enumerate(owners):
            part_of = 1 / len(owners)
            draw.box(ax, block, i * part_of, name, COLOURS[name], height=part_of)
        if not owners:
            draw.box(ax, block, 0)
        count = manager.ref_count(block)
        label = f"{block}" if count < 2 else f"{block}: {count} refs"
        ax.text(block + 0.5, 1.1, label, ha="center", va="top", fontsize=7)


# %% [markdown]
# ## A pool over time
#
# Requests a, b and c come, b goes, d comes and needs six blocks. Can it have six in a row? Does it
# need them in a row?

# %%
manager = part.BlockManager(16, BLOCK_SIZE)
fig, axes = draw.figure(8.5, 3.9, 4, 1)
for name, count in (("a", 4), ("b", 3), ("c", 5)):
    manager.allocate(name, count)
pool_map(axes[0], manager, "abc", "a, b and c have come")
manager.free("b")
pool_map(axes[1], manager, "ac", "b has gone")
manager.allocate("d", 6)
pool_map(axes[2], manager, "acd", f"d has come: its table is {manager.get_physical_blocks('d')}")
manager.allocate("a", 1)
pool_map(axes[3], manager, "acd", f"a has grown: its table is {manager.get_physical_blocks('a')}")
draw.show(fig)

# %% [markdown]
# ## Against contiguous buffers
#
# A memory of 160 token slots. Without blocks every request reserves the longest sequence allowed,
# 40 slots, since its length is not known in advance. How many of the requests below fit? How many
# fit your pool of 40 blocks, and what is wasted there at most?

# %%
LENGTHS = [18, 7, 23, 12, 9, 30, 15, 5, 21, 11, 8, 14, 26]
SLOTS, LONGEST = 160, 40

fitting = SLOTS // LONGEST
manager = part.BlockManager(SLOTS // BLOCK_SIZE, BLOCK_SIZE)
admitted = []
for number, length in enumerate(LENGTHS):
    try:
        manager.allocate(f"r{number}", math.ceil(length / BLOCK_SIZE))
    except OutOfBlocksError:
        break
    admitted.append(length)

rows = {
    "contiguous": [(length, LONGEST) for length in LENGTHS[:fitting]],
    "blocks": [(length, BLOCK_SIZE * math.ceil(length / BLOCK_SIZE)) for length in admitted],
}
fig, ax = draw.figure(9, 2.4)
for y, (name, shares) in enumerate(rows.items()):
    x = 0
    for i, (used, reserved) in enumerate(shares):
        ax.barh(y, reserved, left=x, height=0.7, color=draw.PALE, edgecolor=draw.GREY, hatch="///")
        ax.barh(y, used, left=x, height=0.7, color=draw.PALETTE[i % 5], edgecolor="white")
        ax.text(x + used / 2, y, used, ha="center", va="center",
                color=draw.ink_on(draw.PALETTE[i % 5]), fontsize=8)  # fmt: skip
        x += reserved
    total = sum(used for used, _ in shares)
    ax.text(0, y - 0.42, f"{name}: {len(shares)} requests, {total / SLOTS:.0%} of the memory holds keys",
            va="bottom")  # fmt: skip
ax.set(
    xlim=(0, SLOTS), ylim=(1.5, -0.75), yticks=[], xlabel="token slots; strokes: reserved, empty"
)
ax.spines["left"].set_visible(False)
draw.show(fig)

# %% [markdown]
# ## Sharing, and the copy before a write
#
# b starts with the same ten tokens as a: two full blocks and a half. It shares all three. Then it
# wants to write its eleventh token, into the third block. What would a read if it did? Which count
# shows this?

# %%
manager = part.BlockManager(8, BLOCK_SIZE)
manager.allocate("a", 3)
fig, axes = draw.figure(6.5, 3.4, 3, 1)
pool_map(axes[0], manager, "ab", "a alone")
manager.share("b", manager.get_physical_blocks("a"))
pool_map(axes[1], manager, "ab", "b shares a's blocks")
pair = manager.copy_on_write("b", 2)
pool_map(axes[2], manager, "ab", f"after copy_on_write('b', 2), which returned {pair}")
draw.show(fig)
print("and once more:", manager.copy_on_write("b", 2), "(b is the only holder now)")

# %% [markdown]
# ## Where tokens lie, and how they are read
#
# A request of ten tokens has the block table [5, 1, 6]. Slot s is row s % 4 of block s // 4. Which
# slots does your `slot_mapping` send its tokens to? `gather` reads them back through the table: what do
# the last two places hold?

# %%
TABLE, NUM_TOKENS = [5, 1, 6], 10
pool = part.KVPool([KVLayerSpec(1, 1)], 8, BLOCK_SIZE, torch.float32, torch.device("cpu"))
positions = torch.arange(NUM_TOKENS)
rows = torch.zeros_like(positions)  # all tokens are of one request
slots = pool.slot_mapping(torch.tensor([TABLE], dtype=torch.int32), rows, positions)
print("slots of tokens 0 to 9:", slots.tolist())
keys = torch.arange(1.0, NUM_TOKENS + 1).reshape(-1, 1, 1)
pool.write(0, keys, keys, slots)

fig, ax = draw.figure(9, 2.6)
draw.board(ax, 8 * BLOCK_SIZE, 6)
for block, content in enumerate(pool.blocks(0)[0].flatten(1).tolist()):
    for row, value in enumerate(content):
        colour = draw.PALETTE[TABLE.index(block)] if value else draw.PALE
        draw.box(ax, block * BLOCK_SIZE + row, 1, int(value) if value else "", colour)
    draw.box(ax, block * BLOCK_SIZE, 1, "", "none", width=BLOCK_SIZE, edge=draw.INK)
    ax.text((block + 0.5) * BLOCK_SIZE, 0.8, f"block {block}", ha="center", fontsize=8)
gathered = pool.gather(0, torch.tensor([TABLE]))[0].flatten().tolist()
for place, value in enumerate(gathered):
    colour = draw.PALETTE[place // BLOCK_SIZE] if value else draw.PALE
    draw.box(ax, place, 4.5, int(value) if value else "", colour)
ax.text(
    0, 4.2, f"gather(table {TABLE}): tokens 1 to {NUM_TOKENS} in order, then what the block holds"
)
draw.show(fig)

# %% [markdown]
# ## The life of a cache
#
# Six requests in a row, each with a system prompt of 16 tokens that all share, a question of 8 and
# an answer of 8. Blocks of finished requests stay cached in the radix tree until another request
# needs them. Where does the first cached block appear? When must something be evicted from a pool
# of 20?

# %%
tree = parts["radix_tree"].RadixTree(BLOCK_SIZE)
cache = part.KVCacheManager(part.BlockManager(20, BLOCK_SIZE), tree)
history, starts, evictions = [], [], []


def note():
    """Keep the counters for the picture."""
    history.append(cache.stats())


for number in range(6):
    prompt = list(range(16)) + [100 * number + i for i in range(50, 58)]
    request = Request(f"r{number}", prompt, SamplingParams(), max_tokens=8)
    request.status = RequestStatus.RUNNING
    starts.append((len(history), cache.admit(request)))
    while request.num_output_tokens < 8:
        assert cache.allocate(request, request.num_tokens), "the pool is too small"
        request.num_computed_tokens = request.num_tokens
        cache.commit(request)
        request.token_ids.append(1000 + 10 * number + request.num_output_tokens)
        note()
    cache.free(request)
    note()

steps = range(len(history))
layers = [
    [entry[name] for entry in history] for name in ("used_blocks", "cached_blocks", "free_blocks")
]
fig, ax = draw.figure(9, 3.2)
ax.stackplot(steps, *layers, step="post", labels=["in use", "cached", "free"],
             colors=[draw.BLUE, draw.ORANGE, draw.PALE], edgecolor="white")  # fmt: skip
for number, (at, cached) in enumerate(starts):
    ax.axvline(at, color=draw.INK, linewidth=0.6, linestyle=":")
    ax.text(at + 0.2, 20.4, f"r{number}: {cached} cached", fontsize=7)
ax.set(
    xlabel="step", ylabel="blocks", xlim=(0, len(history) - 1), ylim=(0, 20), yticks=range(0, 21, 5)
)
ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3)
draw.show(fig)
print("evicted in all:", cache.stats()["evicted_blocks"], "blocks")

# %% [markdown]
# ## Change this and see
#
# 1. Set `BLOCK_SIZE` to 1, 16 and 40. What happens to the share of memory that holds keys, and what
#    to the length of a block table?
# 2. Give the last picture `tree = None`. What is missing from it?
# 3. In the sharing picture, let a third request share b's table before the copy. Which counts do
#    you expect, and does c move with b?
