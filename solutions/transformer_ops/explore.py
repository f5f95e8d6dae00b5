# %% [markdown]
# # Lab 2: what the operations of a layer do to vectors
#
# Vectors are drawn where they can be: two dimensions at a time. Everything below is computed by
# your `TransformerOps`.

# %%
import torch
from matplotlib.patches import Circle

from yaie.core.batch import AttentionSpec
from yaie.explore import draw, load

ops = load("transformer_ops")["transformer_ops"].TransformerOps()
torch.manual_seed(0)


def tables(num_positions, dim, base=100.0):
    """cos and sin [num_positions, dim / 2] of a rotary embedding; a small base, to see all of it."""
    frequencies = base ** (-torch.arange(0, dim, 2) / dim)
    angles = torch.outer(torch.arange(num_positions).float(), frequencies)
    return angles.cos(), angles.sin()


# %% [markdown]
# ## RMSNorm
#
# Forty points in the plane go through `rms_norm` with a weight of (1, 1). On which curve do they
# end, and which property of a point survives? What does the weight (1.5, 0.5) make of that curve?

# %%
points = torch.randn(40, 2) * torch.tensor([1.5, 0.7])
fig, axes = draw.figure(8, 3.2, 1, 2, sharex=True, sharey=True)
for ax, weight in zip(axes, ((1.0, 1.0), (1.5, 0.5)), strict=True):
    normed = ops.rms_norm(points.clone(), torch.tensor(weight), 1e-6)
    for (x0, y0), (x1, y1) in zip(points.tolist(), normed.tolist(), strict=True):
        ax.plot([x0, x1], [y0, y1], color=draw.PALE, linewidth=1, zorder=0)
    ax.scatter(*points.T, s=14, facecolor="none", edgecolor=draw.GREY, label="before")
    ax.scatter(*normed.T, s=16, color=draw.BLUE, label="after")
    ax.axhline(0, color=draw.GREY, linewidth=0.5)
    ax.axvline(0, color=draw.GREY, linewidth=0.5)
    ax.set(title=f"weight {weight}", aspect="equal")
axes[0].legend(loc="lower right")
draw.show(fig)

# %% [markdown]
# ## Rotations
#
# A head of 8 dimensions holds 4 pairs: dimension i turns together with dimension i + 4. The vector
# (1, 1, 1, 1, 0, 0, 0, 0) is moved to positions 0 to 11. Which pair turns fastest? Could a model
# tell positions 0 and 6 apart by the first pair alone?

# %%
POSITIONS, DIM = 12, 8
cos, sin = tables(64, DIM)
vector = torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0])
x = vector.repeat(POSITIONS, 1, 1)
turned, _ = ops.rope(x.clone(), x.clone(), torch.arange(POSITIONS), cos, sin)

fig, axes = draw.figure(9, 2.7, 1, 4, sharex=True, sharey=True)
for pair, ax in enumerate(axes):
    first, second = turned[:, 0, pair], turned[:, 0, pair + DIM // 2]
    for position, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        ax.plot([0, a], [0, b], color=draw.WEIGHTS(0.2 + 0.8 * position / POSITIONS), linewidth=1)
        if position in ((0, 1, 2, 3, 4) if pair < 2 else (0, POSITIONS - 1)):
            ax.text(1.2 * a, 1.2 * b, position, ha="center", va="center", fontsize=7)
    ax.add_patch(Circle((0, 0), 1, fill=False, edgecolor=draw.PALE))
    ax.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
    ax.set_title(f"dimensions {pair} and {pair + DIM // 2}")
    ax.axis("off")
fig.suptitle("positions 0 (light) to 11 (dark); some are numbered", fontsize=9)
draw.show(fig)

# %% [markdown]
# ## Why rotate at all?
#
# One query vector and one key vector are put at every pair of positions. What do you expect along
# the diagonals of the matrix of their products?

# %%
span = 24
q, k = torch.randn(1, 1, DIM), torch.randn(1, 1, DIM)
rows = torch.arange(span)
turned_q, turned_k = ops.rope(q.repeat(span, 1, 1), k.repeat(span, 1, 1), rows, cos, sin)
scores = turned_q[:, 0] @ turned_k[:, 0].T

fig, (left, right) = draw.figure(8.5, 3.2, 1, 2)
image = left.imshow(scores, cmap="cividis")
left.set(title="query · key", xlabel="position of the key", ylabel="position of the query")
fig.colorbar(image, ax=left, shrink=0.8)
for distance in range(span):
    products = scores.diagonal(-distance)
    right.plot([distance] * len(products), products, "o", color=draw.BLUE, alpha=0.3, markersize=4)
right.set(title="all 300 of them with the query behind", xlabel="distance", ylabel="query · key")
draw.show(fig)

# %% [markdown]
# ## The causal mask
#
# Four queries are at the end of sequences of 9 and of 6 keys, padded to 10. Where does the first
# query of each row of the batch stop seeing? What changes with a window of 3?

# %%
lens = torch.tensor([9, 6])
fig, axes = draw.figure(8.5, 3.6, 2, 2)
for line, window in zip(axes, (None, 3), strict=True):
    mask = ops.causal_mask(lens, 4, 10, window, torch.float32)
    for ax, one, length in zip(line, mask, lens.tolist(), strict=True):
        title = f"{length} keys" + (f", window {window}" if window else "")
        draw.heat(ax, (one == 0).float() * 0.6, title, y="query", top=1, hidden=one.isneginf())
        ax.set_yticks(range(4), [f"{j} at {length - 4 + j}" for j in range(4)])
        ax.set_xticks(range(10))
fig.supxlabel("key position: blue is seen, × is hidden", fontsize=9)
draw.show(fig)

# %% [markdown]
# ## Attention weights, seen through one-hot values
#
# `attention` does not return its weights. But if value j is 1 in dimension j and 0 elsewhere, the
# output is the weights themselves. Four heads read two key heads below: which panels use the same
# keys? Why do they still differ?

# %%
LENGTH, HEADS, KV_HEADS = 8, 4, 2
spec = AttentionSpec(scale=LENGTH**-0.5)
q = 1.5 * torch.randn(1, LENGTH, HEADS, LENGTH)
k = 1.5 * torch.randn(1, LENGTH, KV_HEADS, LENGTH)
v = torch.eye(LENGTH)[None, :, None, :].repeat(1, 1, KV_HEADS, 1)
mask = ops.causal_mask(torch.tensor([LENGTH]), LENGTH, LENGTH, None, torch.float32)


def weights(spec):
    """[queries, heads, keys]"""
    return ops.attention(q, k, v, mask, spec)[0]


fig, axes = draw.figure(9.5, 2.9, 1, HEADS, sharey=True)
for head, ax in enumerate(axes):
    title = f"head {head} on key head {head // (HEADS // KV_HEADS)}"
    image = draw.heat(ax, weights(spec)[:, head], title, x="key", top=1)
axes[0].set_ylabel("query")
fig.colorbar(image, ax=axes, shrink=0.7, label="weight")
draw.show(fig)

# %% [markdown]
# ## Softcap and sinks
#
# Head 0 again: as it was, with scores capped at ± 1, and with a sink. In which panel do the weights
# of a query not add up to 1? Where did the rest go?

# %%
kinds = {
    "plain": spec,
    "softcap 1": AttentionSpec(scale=spec.scale, softcap=1.0),
    "sink logit 1": AttentionSpec(scale=spec.scale, sinks=torch.ones(HEADS)),
}
fig, axes = draw.figure(9, 3, 1, 3, sharey=True)
for ax, (title, kind) in zip(axes, kinds.items(), strict=True):
    seen = weights(kind)[:, 0]
    draw.heat(ax, seen, title, x="key", top=1)
    for query, total in enumerate(seen.sum(-1).tolist()):
        ax.text(LENGTH - 0.3, query, f"{total:.2f}", va="center", fontsize=7)
    ax.text(LENGTH - 0.3, -0.9, "sum", fontsize=7)
axes[0].set_ylabel("query")
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Give `tables` a base of 10,000, as Llama has. How far has the slowest pair turned after 11
#    positions?
# 2. Add 1000 to `rows` (and make the tables long enough). Which panel of "Why rotate at all?"
#    changes?
# 3. Set every logit of `sinks` to 5, then to -20. Which of the two is attention as usual?
# 4. Let `KV_HEADS` be 1, then 4. What becomes of the memory that keys and values take?
