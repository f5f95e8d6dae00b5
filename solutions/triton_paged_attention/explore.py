# %% [markdown]
# # Lab 11: where the programs go
#
# A decode reads every key of its sequence once, so that all that counts is whether all of the
# machine reads at the same time. Attention is computed by your kernels here, in Triton's interpreter
# if there is no GPU; the machine with 12 SM slots is simulated.

# %%
import math
import os

if not any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/dxg")):
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is defined

import torch

from yaie.core.batch import AttentionSpec
from yaie.explore import draw, load

part = load("triton_paged_attention")["triton_paged_attention"]
choose_splits = part.splits.choose_splits
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"

# %% [markdown]
# ## Through the table
#
# The value in slot s is 1 in dimension s and 0 elsewhere, so that the result of a decode tells how
# much weight each slot of the pool got. Three sequences share their first two blocks. Which slots of
# C's last block are read? What would a mask that ends with the block show?

# %%
BLOCK_SIZE, NUM_BLOCKS = 4, 9
NUM_SLOTS = BLOCK_SIZE * NUM_BLOCKS
TABLES = [[2, 5, 0, 7], [2, 5, 3, -1], [2, 5, 8, -1]]
KEYS = [14, 11, 9]


def weights(**spec):
    """[sequences, slots]: what each decode reads."""
    torch.manual_seed(3)
    keys = torch.randn(NUM_BLOCKS, BLOCK_SIZE, 1, NUM_SLOTS)
    values = torch.eye(NUM_SLOTS).view(NUM_BLOCKS, BLOCK_SIZE, 1, NUM_SLOTS)
    q = torch.randn(3, 1, NUM_SLOTS)
    tensors = (q, keys, values, torch.tensor(TABLES).int(), torch.tensor(KEYS).int())
    out = part.PagedAttention(splits=1).decode(
        *(x.to(DEVICE) for x in tensors), AttentionSpec(0.25, **spec), max_seq_len=16
    )
    return out[:, 0].cpu()


fig, axes = draw.figure(9, 3.6, 2, 1)
for ax, title, spec in zip(axes, ("all keys", "a window of 5"), ({}, {"window": 5}), strict=True):
    draw.heat(ax, weights(**spec), f"weight of each slot: {title}", top=0.5)
    for block in range(NUM_BLOCKS):
        ax.axvline(block * BLOCK_SIZE - 0.5, color=draw.GREY, linewidth=1)
    ax.set(yticks=range(3), yticklabels="ABC", xlabel="slot of the pool")
draw.show(fig)

# %% [markdown]
# ## Programs and SM slots
#
# Twelve programs run at a time. A bar is a program, its length the keys that it reads; the
# hardware gives the next program to the first place that is free. How many parts does your
# `choose_splits` make of 1, 3, 5 and 12 sequences? Where does the machine wait, and for whom?

# %%
PLACES, TILE = 12, 64


def shares(lens, splits):
    """(sequence, keys) of every program: whole tiles, all parts of a sequence alike."""
    for i, length in enumerate(lens):
        size = math.ceil(math.ceil(length / TILE) / splits) * TILE
        yield from ((i, min(size, length - begin)) for begin in range(0, length, size))


def run(ax, lens, splits, title):
    """Draw who runs where and when; gives the keys that the last one ends at."""
    free = [0] * PLACES
    colours = draw.colours(str(i) for i in range(len(lens)))
    for i, keys in shares(lens, splits):
        place = min(range(PLACES), key=free.__getitem__)
        draw.box(ax, free[place], place, "", colours[str(i)], width=keys, height=0.85)
        free[place] += keys
    used = sum(lens) / (PLACES * max(free))
    ax.set(xlim=(0, 4200), ylim=(PLACES, -0.2), yticks=[], xlabel="keys read, one after the other")
    ax.set_title(f"{title}: {used:.0%} of the machine")


cases = {"1 sequence": [4096], "3": [4096] * 3, "5": [4096] * 5, "12": [4096] * 12}
fig, axes = draw.figure(10, 6, 4, 2)
for row, (name, lens) in zip(axes, cases.items(), strict=True):
    splits = choose_splits(len(lens), 1, max(lens), TILE, PLACES)
    run(row[0], lens, 1, f"{name}, not split")
    run(row[1], lens, splits, f"{name}, {splits} splits")
draw.show(fig)

# %% [markdown]
# ## Sequences of different length
#
# A batch in a server is not so even. The same parts for every sequence, each by its own length: who is
# the last now? Would sorting the sequences help?

# %%
lens = [400, 3900, 150, 1200, 2500, 90, 800, 3000]
fig, axes = draw.figure(10, 2.4, 1, 3)
for ax, (splits, order) in zip(axes, ((1, lens), (4, lens), (1, sorted(lens)[::-1])), strict=True):
    run(
        ax,
        order,
        splits,
        f"{splits} split{'s' * (splits > 1)}" + ", longest first" * (order != lens),
    )
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Let `KEYS` of B be 12, then 8. Which slots change?
# 2. Set `PLACES` to 16. Which of the four cases gets worse, and why?
# 3. Give `weights` a `sinks=torch.tensor([2.0])` (on `DEVICE`): what do the rows add up to?
