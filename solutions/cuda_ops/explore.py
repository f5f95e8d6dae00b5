# %% [markdown]
# # Lab 14: sums that many threads share
#
# Your kernels run on the CPU here, in blocks of threads that really are interleaved, and every
# access is counted as a GPU would count it.

# %%
from importlib import import_module

import torch

from yaie.cuda.on_cpu import recording, settings
from yaie.explore import draw, load

part = load("cuda_ops")["cuda_ops"]
kernels = part.LayerKernels()
naive = import_module(f"{part.__name__}.naive").NaiveLayerKernels()
sums = import_module(f"{part.__name__}.sums")


def launch_of(call):
    """What the (only) launch of a call did."""
    with recording() as launches:
        call()
    return launches[0]


# %% [markdown]
# ## Every thread gets the sum
#
# 96 threads hold 0, 1, 2, ..., 95. What does each of them get from `block_sum`? Let the threads run
# in twenty different orders: how many different answers may there be?

# %%
x = torch.arange(96.0)[None]
answers = set()
for seed in range(20):
    with settings(seed=seed):
        answers |= set(sums.block_sums(x)[0, :, 0].tolist())
print("sum of 0 to 95:", sum(range(96)), "- what the threads got, in 20 orders:", answers)

# %% [markdown]
# ## What the sum costs
#
# One sum over blocks of more and more warps. A barrier makes a whole block wait, an exchange only a
# warp. Which of the two numbers depends on the size of the block?

# %%
sizes = [32, 64, 128, 256, 512, 1024]
seen = [launch_of(lambda size=size: sums.block_sums(torch.ones(1, size))) for size in sizes]
fig, (left, right) = draw.figure(8.5, 2.8, 1, 2)
left.plot(sizes, [launch.barriers / 2 for launch in seen], "o-", color=draw.ORANGE)
left.set(title="barriers for a sum", xlabel="threads of the block", ylim=(0, 4))
per_warp = [launch.collectives / 2 / (size // 32) for launch, size in zip(seen, sizes, strict=True)]
right.plot(sizes, per_warp, "o-", color=draw.BLUE)
right.set(title="exchanges of each warp", xlabel="threads of the block", ylim=(0, 14))
draw.show(fig)

# %% [markdown]
# ## A norm, in bytes and sectors
#
# Eight rows of bfloat16, longer and longer: by your kernel, and by one in which a thread has a row
# to itself. The dashed line is what has to be read: the rows once, and the weight for each of them.

# %%
widths = [64, 128, 256, 512, 1024]
fig, (left, right) = draw.figure(9, 3, 1, 2)
for name, those, colour in (("yours", kernels, draw.BLUE), ("naive", naive, draw.ORANGE)):
    loads = []
    for d in widths:
        row, weight = torch.randn(8, d).bfloat16(), torch.ones(d).bfloat16()
        launch = launch_of(
            lambda those=those, row=row, weight=weight: those.rms_norm(row, weight, 1e-5)
        )
        loads.append(launch.global_loads)
    left.plot(widths, [load.bytes for load in loads], "o-", color=colour, label=name)
    right.plot(widths, [load.sectors for load in loads], "o-", color=colour, label=name)
left.plot(widths, [8 * 4 * d for d in widths], "--", color=draw.GREY, label="needed")
left.set(title="bytes that threads load", xlabel="d")
right.plot(widths, [8 * 4 * d / 32 for d in widths], "--", color=draw.GREY)
right.set(title="sectors that warps touch", xlabel="d")
left.legend()
draw.show(fig)

# %% [markdown]
# ## In which precision to add
#
# 1.0 is added up n times: in bfloat16, in float16, in float32. Where does each sum stop growing, and
# what would the norm of such a row be?

# %%
counts = 2 ** torch.arange(0, 14)
fig, ax = draw.figure(7, 3)
dtypes = (torch.float32, torch.float16, torch.bfloat16)
for dtype, colour in zip(dtypes, draw.PALETTE, strict=False):
    total, reached, so_far = torch.zeros((), dtype=dtype), [], 0
    for count in counts.tolist():
        for _ in range(so_far, count):
            total = total + 1
        so_far = count
        reached.append(float(total))
    ax.loglog(
        counts, reached, "o-", color=colour, label=str(dtype).removeprefix("torch."), markersize=4
    )
ax.set(xlabel="n", ylabel="sum of n ones")
ax.legend()
draw.show(fig)

# %% [markdown]
# ## Which numbers a rotation touches
#
# Sixteen heads of 16 dimensions, of which 8 turn; head i is the i-th unit vector. Which dimensions are
# paired? Which rows would stay as they are at any position?

# %%
angles = torch.outer(torch.arange(8.0), 10.0 ** -torch.arange(4.0))
q = torch.eye(16)[:, None, :].contiguous()
before = q.clone()
turned, _ = kernels.rope(q, before.clone(), torch.full((16,), 3), angles.cos(), angles.sin())
fig, ax = draw.figure(4.2, 3.6)
draw.heat(
    ax, turned[:, 0].abs(), "at position 3", x="dimension of the result", y="unit vector", top=1
)
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Take a barrier out of your `block_sum` and run the second cell again. What are you told?
# 2. Let `widths` contain 100 and 36. Which kernel of yours runs then, and how many sectors more?
# 3. Replace 96 by 32 in the first picture's sum: does your `block_sum` still need shared memory?
