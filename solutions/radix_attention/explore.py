# %% [markdown]
# # Lab 5: who sees what, through block tables
#
# Attention follows a block table to the keys of a request. If the value in slot s of the pool is 1
# in dimension s and 0 elsewhere, its output tells how much weight each slot of memory got. That is
# drawn here: rows are queries, columns are slots of the pool.

# %%
import torch

from yaie.core.batch import AttentionBatch, AttentionSpec, KVLayerSpec
from yaie.explore import draw, load

parts = load("radix_attention")
part = parts["radix_attention"]
BLOCK_SIZE, NUM_BLOCKS = 4, 9
NUM_SLOTS = BLOCK_SIZE * NUM_BLOCKS
ops = parts["transformer_ops"].TransformerOps()

# Three requests: two blocks hold a prefix that all share, the others are their own.
NAMES = ["A", "B", "C"]
TABLES = [[2, 5, 0, 7], [2, 5, 3, 0], [2, 5, 8, 0]]
QUERIES, KEYS = [5, 1, 1], [14, 11, 9]


def batch_of(tables, queries, keys):
    """The flat batch: for each sequence its last `queries` tokens, of `keys` in all."""
    starts = torch.tensor([0, *queries]).cumsum(0)
    positions = torch.cat([torch.arange(k - q, k) for q, k in zip(queries, keys, strict=True)])
    owner = torch.repeat_interleave(torch.arange(len(queries)), torch.tensor(queries))
    table = torch.tensor(tables)
    slots = table[owner, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
    lens = torch.tensor(keys, dtype=torch.int32)
    return AttentionBatch(
        list(queries), list(keys), starts.int(), lens, table.int(), slots, positions
    )


def pool_of_one_hots():
    """Random keys; the value of slot s is the s-th unit vector."""
    layers = [KVLayerSpec(1, NUM_SLOTS)]
    pool = parts["paged_cache"].KVPool(
        layers, NUM_BLOCKS, BLOCK_SIZE, torch.float32, torch.device("cpu")
    )
    every = torch.arange(NUM_SLOTS)
    random = torch.randn(NUM_SLOTS, 1, NUM_SLOTS, generator=torch.Generator().manual_seed(1))
    pool.write(0, random, torch.eye(NUM_SLOTS)[:, None], every)
    return pool, random


def weights(queries, keys, tables=TABLES, window=None):
    """[queries of the batch, slots]: what each query reads."""
    pool, random = pool_of_one_hots()
    batch = batch_of(tables, queries, keys)
    attention = part.RadixAttention(pool, ops)
    # A query depends on its position alone, so that the same token asks the same in any batch.
    asked = torch.randn(64, 1, NUM_SLOTS, generator=torch.Generator().manual_seed(2))
    q = 2 * asked[batch.positions]
    ones = torch.eye(NUM_SLOTS)[batch.slot_mapping][:, None]
    spec = AttentionSpec(NUM_SLOTS**-0.5, window)
    return attention.run(0, q, random[batch.slot_mapping], ones, spec, attention.plan(batch))[:, 0]


def draw_slots(ax, seen, labels, title):
    """The matrix, with the blocks named above it and colours for who holds them."""
    draw.heat(ax, seen, top=0.6)
    for block in range(NUM_BLOCKS):
        owners = [n for n, t, k in zip(NAMES, TABLES, KEYS, strict=True)
                  if block in t[: -(-k // BLOCK_SIZE)]]  # fmt: skip
        colour = {0: draw.PALE, 1: draw.ORANGE}.get(len(owners), draw.GREEN)
        draw.box(ax, block * BLOCK_SIZE - 0.5, -2.2, f"{block}: {' '.join(owners) or 'free'}", colour,
                 width=BLOCK_SIZE, height=1.5, size=7)  # fmt: skip
        ax.axvline(block * BLOCK_SIZE - 0.5, color=draw.GREY, linewidth=1)
    ax.set(ylim=(len(seen) - 0.5, -2.3), yticks=range(len(seen)), yticklabels=labels, xlabel="slot")
    ax.set_title(title)


# %% [markdown]
# ## Shared and own blocks
#
# A computes a chunk of 5 tokens, B and C one token each; their tables begin with blocks 2 and 5.
# Which columns are dark in all rows? In which order do A's tokens lie in memory? Where does A's
# first query stop?

# %%
seen = weights(QUERIES, KEYS)
labels = [f"{name} at {k - q + j}" for name, q, k in zip(NAMES, QUERIES, KEYS, strict=True)
          for j in range(q)]  # fmt: skip
fig, ax = draw.figure(9, 3.2)
draw_slots(
    ax, seen, labels, "weight that each query gives to each slot, by block: number and holders"
)
draw.legend(ax, {"shared block": draw.GREEN, "one holder": draw.ORANGE, "free": draw.PALE})
ax.get_legend().set_bbox_to_anchor((0.5, -0.2))
draw.show(fig)
print("each row adds up to", [round(float(total), 3) for total in seen.sum(-1)])

# %% [markdown]
# ## The same, in the order of the request
#
# Follow the table, and memory becomes a sequence again. What shape do you expect for A's five
# queries? What would an error of one in a position look like?

# %%
fig, axes = draw.figure(9, 2.8, 1, 3, width_ratios=(14, 11, 9))
row = 0
for ax, name, table, q, k in zip(axes, NAMES, TABLES, QUERIES, KEYS, strict=True):
    slots = [table[i // BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE for i in range(k)]
    ahead = torch.arange(k)[None] > torch.arange(k - q, k)[:, None]
    draw.heat(
        ax, seen[row : row + q][:, slots], f"request {name}", x="position", top=0.6, hidden=ahead
    )
    ax.set_yticks(range(q), [f"at {k - q + j}" for j in range(q)])
    row += q
draw.show(fig)

# %% [markdown]
# ## A chunk more or less
#
# The fourteen tokens of A in one chunk, then the last six of them, as the second of two chunks. The
# keys of the first eight are in the pool by then. Do the last six rows differ? Why must new keys be
# written before anybody attends?

# %%
fig, axes = draw.figure(9, 4.6, 2, 1, height_ratios=(15, 8))
for ax, count in zip(axes, (14, 6), strict=True):
    rows = [f"at {position}" for position in range(14 - count, 14)]
    draw_slots(ax, weights([count], [14], TABLES[:1]), rows, f"a chunk of {count}")
    ax.set_aspect("auto")
    ax.tick_params(axis="y", labelsize=6)
draw.show(fig)

# %% [markdown]
# ## A window
#
# The layer lets a query see 4 keys, its own included. Which of the shared blocks does B still read?
# Could its memory be given back?

# %%
fig, ax = draw.figure(9, 2.8)
draw_slots(ax, weights(QUERIES, KEYS, window=4), labels, "the same batch with a window of 4")
draw.show(fig)

# %% [markdown]
# ## Who is attended together
#
# Sequences with the same number of queries share one call if their keys are padded to one length;
# padding is wasted work, a call is overhead. Here are 26 decodes and 3 chunks of a step. How many
# calls do you expect? What would one call for all decodes waste?

# %%
lens = [(1, k) for k in (900, 860, 820, 790, 760, 700, 640, 610, 580, 560, 300, 280, 270, 260, 250,
                         240, 230, 220, 210, 205, 200, 60, 50, 40, 30, 20)]  # fmt: skip
lens += [(64, 512), (64, 256), (32, 700)]
queries, keys = [q for q, _ in lens], [k for _, k in lens]
empty = torch.zeros(0)
flat = AttentionBatch(queries, keys, empty, empty, empty, empty, empty)
groups = list(part.grouping.groups_of(flat))

fig, ax = draw.figure(9, 3.4)
x, wasted = 0.0, 0
for number, members in enumerate(groups):
    colour = draw.PALETTE[number % len(draw.PALETTE)]
    longest = max(keys[i] for i in members)
    for i in members:
        ax.bar(x, longest, 0.8, color=draw.PALE, edgecolor=draw.GREY, hatch="////", linewidth=0.5)
        ax.bar(x, keys[i], 0.8, color=colour)
        wasted += longest - keys[i]
        x += 1
    word = "query" if queries[members[0]] == 1 else "queries"
    ax.text(x - 0.5 - len(members) / 2, longest + 20, f"{queries[members[0]]} {word}", ha="center",
            fontsize=8)  # fmt: skip
    x += 0.7
padding = wasted / (wasted + sum(keys))
ax.set(
    xticks=[],
    ylabel="keys",
    ylim=(0, 1020),
    title=f"{len(groups)} calls; strokes are padding: {padding:.0%} of all keys read",
)
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Let C's table begin with other blocks, say [6, 1, 8, 0]. Which columns of the first picture
#    change?
# 2. Set `KEYS` of A to 16, then to 12. Which slots of block 7 are read?
# 3. Set `part.grouping.MAX_WASTE` to 0 and to 1 if your code reads it there, and run the last
#    picture again. What is the price of each?
