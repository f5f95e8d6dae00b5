# %% [markdown]
# # Lab 13: what a warp asks memory for
#
# Your kernels run on the CPU here, and every access is counted as a GPU would count it: for the 32
# threads of a warp at once, in sectors of 32 bytes.

# %%
from functools import partial
from importlib import import_module

import torch

from yaie.cuda.on_cpu import recording
from yaie.explore import draw, load

part = load("cuda_memory_ops")["cuda_memory_ops"]
memory = part.MemoryKernels()
naive = import_module(f"{part.__name__}.naive").NaiveMemoryKernels()


def traffic(call):
    """The launches of a call, as (loads, stores) of global memory, added up."""
    with recording() as launches:
        call()
    return [sum((getattr(launch, kind) for launch in launches[1:]), getattr(launches[0], kind))
            for kind in ("global_loads", "global_stores")]  # fmt: skip


def batch(tokens=32, row=128, offset=0):
    """k, v and two pools of bfloat16; `offset` numbers past an aligned address."""
    room = torch.randn(2, tokens * row + offset).bfloat16()
    k, v = room[:, offset:].view(2, tokens, 1, row)
    pools = torch.zeros(2, tokens // 4, 4, 1, row, dtype=torch.bfloat16)
    return k, v, *pools, torch.randperm(tokens)


# %% [markdown]
# ## Sectors
#
# 32 tokens of 256 bytes are stored: by your kernel, and by the naive one, in which thread t copies
# token t. Both move the same bytes. Which one touches more sectors, and how many times more?

# %%
kinds = ["loads", "stores"]
fig, axes = draw.figure(8.5, 3, 1, 2, sharey=True)
for ax, (name, kernels) in zip(axes, {"yours": memory, "naive": naive}.items(), strict=True):
    arguments = batch()
    found = traffic(lambda kernels=kernels, arguments=arguments: kernels.store_kv(*arguments))
    ax.bar([0, 1], [t.sectors for t in found], 0.7, color=draw.ORANGE, label="sectors touched")
    ax.bar([0, 1], [t.ideal_sectors for t in found], 0.4, color=draw.BLUE, label="sectors needed")
    for x, t in enumerate(found):
        ax.text(x, t.sectors, f"{t.sectors:,}", ha="center", va="bottom", fontsize=8)
    ax.set(xticks=[0, 1], xticklabels=kinds, title=name)
axes[0].legend()
draw.show(fig)

# %% [markdown]
# ## Sixteen bytes at a time
#
# How many bytes does one store of yours move, if k begins 0, 1, 2, ... numbers (of 2 bytes) past an
# aligned address? What would a kernel do that always moved 16?

# %%
offsets = range(9)
widths = []
for offset in offsets:
    arguments = batch(8, 64, offset)
    stores = traffic(lambda arguments=arguments: memory.store_kv(*arguments))[1]
    widths.append(stores.bytes / stores.count)
fig, ax = draw.figure(7, 2.6)
ax.bar(offsets, widths, color=draw.BLUE)
for x, width in zip(offsets, widths, strict=True):
    ax.text(x, width, f"{width:g}", ha="center", va="bottom", fontsize=8)
ax.set(
    xticks=offsets, xlabel="numbers past an aligned address", ylabel="bytes a store", ylim=(0, 19)
)
draw.show(fig)

# %% [markdown]
# ## Larger blocks
#
# Eight blocks are gathered, larger and larger. How many stores do warps execute for them, and how
# many sectors does one of these fill? What is the most that a store of 32 times 16 bytes can fill?

# %%
sizes = [64, 256, 1024, 4096, 16384]
numbers = torch.arange(8, dtype=torch.int32)[None]
fig, (left, right) = draw.figure(8.5, 2.8, 1, 2)
for name, kernels, colour in (("yours", memory, draw.BLUE), ("naive", naive, draw.ORANGE)):
    stores = []
    for size in sizes:
        blocks = torch.zeros(8, 1, size // 4)
        stores.append(traffic(partial(kernels.gather, blocks, numbers))[1])
    left.loglog(sizes, [t.requests for t in stores], "o-", color=colour, label=name)
    filled = [t.bytes / 32 / t.requests for t in stores]
    right.semilogx(sizes, filled, "o-", color=colour)
left.set(title="stores of warps", xlabel="bytes of a block")
left.legend()
right.set(title="sectors filled by a store", xlabel="bytes of a block", ylim=(0, 17))
draw.show(fig)

# %% [markdown]
# ## Blocks that move
#
# Ten blocks of a pool, each of its own number. A gather reads the table 7, 2, 2, 9; a copy moves
# block 0 to 5 and 8 to 1; a swap brings blocks 3 and 4 to blocks 0 and 6 of another pool. What do
# you expect in each row?

# %%
pool = torch.arange(10.0)[:, None].expand(10, 8).contiguous()
rows = {"the pool": pool[:, 0].clone()}
table = torch.tensor([[7, 2, 2, 9]], dtype=torch.int32)
rows["gather 7, 2, 2, 9"] = memory.gather(pool[:, :, None], table).view(4, 8)[:, 0]
other = torch.full((10, 8), -1.0)
memory.swap_blocks(pool, other, torch.tensor([[3, 0], [4, 6]]))
rows["swap 3 to 0, 4 to 6"] = other[:, 0]
memory.copy_blocks([pool], torch.tensor([[0, 5], [8, 1]]))
rows["copy 0 to 5, 8 to 1"] = pool[:, 0]
fig, ax = draw.figure(8, 2.6)
for y, (name, numbers) in enumerate(rows.items()):
    ax.text(-0.3, -y, name, ha="right", va="center", fontsize=8)
    for x, number in enumerate(numbers.tolist()):
        known = number >= 0
        colour = draw.WEIGHTS(0.1 + number / 15) if known else draw.PALE
        draw.box(ax, x, -y - 0.4, f"{number:g}" if known else "", colour, width=0.9, height=0.8)
ax.set(xlim=(-3.5, 10), ylim=(-len(rows) + 0.3, 0.7))
ax.axis("off")
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Set `row=127` in `batch`. What becomes of the width of a store, and why of every row's?
# 2. Give `batch` 33 tokens (and a pool that is large enough): do the sectors per token change?
# 3. Let your kernel's threads run along tokens instead of along a row, and draw the sectors again.
