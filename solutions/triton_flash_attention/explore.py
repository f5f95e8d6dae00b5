# %% [markdown]
# # Lab 10: what a kernel reads, seen from outside
#
# Everything below is computed by your `FlashAttention`, in Triton's interpreter if there is no GPU.
# Its weights never lie in memory; three tricks make them visible all the same.

# %%
import math
import os

if not any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/dxg")):
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is defined

import torch

from yaie.explore import draw, load

kernels = load("triton_flash_attention")["triton_flash_attention"].FlashAttention()
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
torch.manual_seed(0)


def tensors(tq, tk, heads=1, kv_heads=1, dim=32):
    """Random q, k and v."""
    q = 1.5 * torch.randn(1, tq, heads, dim)
    k, v = (1.5 * torch.randn(1, tk, kv_heads, dim) for _ in range(2))
    return (x.to(DEVICE) for x in (q, k, v))


# %% [markdown]
# ## Weights through one-hot values
#
# If the value of key i is 1 in dimension i and 0 elsewhere, the output of a query is its row of
# weights. Six queries are at the end of 24 keys. Where does the first of them stop? What does a
# window of 8 take away, and what becomes of the weights that are left?

# %%
TQ, TK = 6, 24
q, k, _ = tensors(TQ, TK)
one_hot = torch.eye(TK, 32, device=DEVICE)[None, :, None, :]
kinds = {
    "causal": {},
    "causal, window 8": {"window": 8},
    "not causal": {"causal": False},
}
fig, axes = draw.figure(8.5, 4.2, 3, 1)
for ax, (title, options) in zip(axes, kinds.items(), strict=True):
    out, _ = kernels.forward(q, k, one_hot, scale=32**-0.5, **options)
    weights = out[0, :, 0, :TK].cpu()
    draw.heat(ax, weights, title, y="query", top=0.6, hidden=weights == 0)
axes[-1].set_xlabel("key")
draw.show(fig)

# %% [markdown]
# ## Tiles through NaN
#
# 0 times NaN is NaN. So put NaN into the values of 16 keys in a row: the queries whose output becomes
# NaN are those whose program has loaded them, seen or not. Each panel takes one run for each strip of
# keys. What is the size of your query tiles? Which tiles are loaded although half of them is hidden?

# %%
LENGTH, STRIP = 128, 16
q, k, v = tensors(LENGTH, LENGTH, dim=16)
keep = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]], device=DEVICE).bool()
kinds = {
    "causal": {},
    "causal, window 24": {"window": 24},
    "a block mask": {"causal": False, "block_mask": keep, "mask_block": 32},
}
fig, axes = draw.figure(9, 3.2, 1, 3, sharey=True)
for ax, (title, options) in zip(axes, kinds.items(), strict=True):
    touched = torch.zeros(LENGTH, LENGTH)
    for start in range(0, LENGTH, STRIP):
        spoilt = v.clone()
        spoilt[:, start : start + STRIP] = math.nan
        out, _ = kernels.forward(q, k, spoilt, scale=0.25, **options)
        touched[:, start : start + STRIP] = out[0, :, 0, :1].isnan().cpu().float()
    ax.imshow(touched, cmap=draw.WEIGHTS, vmin=0, vmax=1.6)
    ax.set(title=f"{title}: {touched.mean():.0%} loaded", xlabel="key")
    ax.set(xlim=(-0.5, LENGTH - 0.5), ylim=(LENGTH - 0.5, -0.5))
    ax.set_xticks(range(0, LENGTH, 32))
    ax.set_yticks(range(0, LENGTH, 32))
    if title.startswith("causal"):
        ax.plot([0, LENGTH - 1], [0, LENGTH - 1], color=draw.ORANGE, linewidth=1)
axes[0].set_ylabel("query")
draw.show(fig)

# %% [markdown]
# ## A softmax that grows
#
# lse is the logarithm of the softmax's denominator: given the first m keys, what would it be? Below
# it is asked for each m. It never falls: why? Where does it jump, and what happens to the weights of
# all earlier keys there?

# %%
q, k, v = tensors(1, 60)
scores = (q[0, 0, 0] @ k[0, :, 0].T * 32**-0.5).cpu()
curve = [kernels.forward(q, k[:, :m], v[:, :m], scale=32**-0.5)[1].item() for m in range(1, 61, 3)]
fig, ax = draw.figure(8.5, 2.8)
ax.bar(range(60), scores, color=draw.PALE, label="score of each key")
peaks = torch.cummax(scores, 0).values
ax.step(range(60), peaks, where="post", color=draw.ORANGE, label="largest so far")
ax.plot(range(0, 60, 3), curve, "o-", color=draw.BLUE, markersize=3, label="lse of the keys so far")
ax.set(xlabel="key")
ax.legend(loc="lower right", ncols=3)
draw.show(fig)

# %% [markdown]
# ## Gradients through one-hot gradients
#
# dV is P transposed, times dO. If the gradient of query j's output is 1 in dimension j and 0
# elsewhere, column j of dV is query j's row of weights: the backward pass has recomputed it from lse.
# Compare with the first picture. What would the right panel show if lse were a logarithm to base 2?

# %%
q, k, _ = tensors(TQ, TK)
out, lse = kernels.forward(q, k, one_hot, scale=32**-0.5)
grad = torch.eye(TQ, 32, device=DEVICE)[None, :, None, :].contiguous()
_, _, dv = kernels.backward(grad, q, k, one_hot, out, lse, scale=32**-0.5)
fig, (left, right) = draw.figure(8.5, 2.9, 2, 1)
draw.heat(left, out[0, :, 0, :TK].cpu(), "weights of the forward pass", y="query", top=0.6)
draw.heat(right, dv[0, :, 0, :TQ].T.cpu(), "recomputed, as dV", x="key", y="query", top=0.6)
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Let `TQ` be 30 with `TK` still 24. What do the first queries give, and what is their lse?
# 2. Set `LENGTH` to 160 and the window to 1. How many keys are loaded for one that is seen?
# 3. Draw two query heads on one key head, `heads=2`: does `touched` differ between the heads?
# 4. In the last picture, add `causal=False` to `backward` alone. What does dV add up to now?
