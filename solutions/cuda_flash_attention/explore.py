# %% [markdown]
# # Lab 15: tiles, seen by who reads what
#
# Your kernels run on the CPU here, thread by thread, and every access is counted. The naive kernel
# beside them (one thread a query) is given.

# %%
import torch

from yaie.cuda.on_cpu import recording
from yaie.explore import draw, load

torch.manual_seed(0)
lab = load("cuda_flash_attention")["cuda_flash_attention"]
flash, kernels = lab.FlashAttention(), lab.flash_attention

# %% [markdown]
# ## What a query sees
#
# If value j is 1 in dimension j and 0 elsewhere, the output of attention is its weights. Forty queries
# on forty keys, all keys equal. Which rows of the last panel are empty? Which tiles of the third one
# need not be computed?

# %%
TOKENS = 40
q, k = torch.zeros(1, TOKENS, 1, TOKENS), torch.zeros(1, TOKENS, 1, TOKENS)
v = torch.eye(TOKENS)[None, :, None, :].contiguous()
blocks = torch.tensor([[False, True, False], [False, True, False], [True, False, True]])
kinds = {
    "causal": {},
    "a window of 6": {"window": 6},
    "blocks of 16": {"causal": False, "block_mask": blocks, "mask_block": 16},
    "causal, blocks of 16": {"block_mask": blocks, "mask_block": 16},
}
fig, axes = draw.figure(9.5, 2.8, 1, 4, sharey=True)
for ax, (title, rules) in zip(axes, kinds.items(), strict=True):
    weights, _ = flash.forward(q, k, v, scale=1.0, **rules)
    ax.imshow((weights[0, :, 0] > 0).float(), cmap=draw.WEIGHTS, vmin=0, vmax=1.6)
    ax.set(title=title, xlabel="key")
axes[0].set_ylabel("query")
draw.show(fig)

# %% [markdown]
# ## What is read from global memory
#
# The naive kernel reads all keys and values once for each query, your kernel once for each tile of 64
# queries. For which number of queries do you expect the two lines to be 64 times apart?

# %%
LENGTHS = (1, 4, 16, 64)


def bytes_read(run, queries):
    """Bytes that all threads together ask global memory for, 32 keys of 16 elements."""
    q, k, v = torch.randn(1, queries, 1, 16), torch.randn(1, 32, 1, 16), torch.randn(1, 32, 1, 16)
    with recording() as launches:
        run(q, k, v, scale=0.25, causal=False)
    return launches[0].global_loads.bytes


fig, ax = draw.figure(5.5, 3)
for name, run, colour in (
    ("a thread a query", kernels.naive_forward, draw.ORANGE),
    ("tiles of 64 queries", flash.forward, draw.BLUE),
):
    counted = [bytes_read(run, queries) for queries in LENGTHS]
    ax.loglog(LENGTHS, counted, "o-", color=colour, label=name, base=2)
    for queries, count in zip(LENGTHS, counted, strict=True):
        ax.annotate(f"{count / 1024:.0f} KiB", (queries, count), fontsize=7)
ax.set(xlabel="queries", ylabel="bytes read", title="32 keys and values of 16 float32")
ax.legend()
draw.show(fig)

# %% [markdown]
# ## What is read from shared memory
#
# The lines of your files that read shared memory most in one forward pass, and the extra passes that
# their bank conflicts cost. Is there a line with many? Which one would it be without PAD?

# %%
q, k, v = (torch.randn(1, 64, 1, 16) for _ in range(3))
with recording() as launches:
    flash.forward(q, k, v, scale=0.25, causal=False)
lines = [line for line in launches[0].lines if line.kind == "shared load"]
lines.sort(key=lambda line: -line.traffic.requests)
for line in lines[:4]:
    t = line.traffic
    print(f"{line.file}:{line.line}: {t.requests} requests of warps, {t.extra_passes} extra passes")

# %% [markdown]
# ## Change this and see
#
# 1. Set PAD to 0 in `tiles.cuh` and run the last cell again. And with PAD 8? Why must it be a multiple
#    of 4?
# 2. Draw the weights with 60 queries and 40 keys. Which queries see nothing?
# 3. Let `LENGTHS` go to 65 and 128. Why does the line of your kernel jump?
