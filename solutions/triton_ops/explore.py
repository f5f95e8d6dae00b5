# %% [markdown]
# # Lab 9: what a kernel reads, writes and rounds
#
# Everything below is computed by your kernels, in Triton's interpreter if there is no GPU.

# %%
import os

if not any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/dxg")):
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is defined

import torch

from yaie.explore import draw, load

kernels = load("triton_ops")["triton_ops"].LayerKernels()
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


def run(name, *tensors, **others):
    """One of your kernels on the machine's device; what it gives comes back to the CPU."""
    out = getattr(kernels, name)(*(x.to(DEVICE) for x in tensors), **others)
    return out.cpu() if isinstance(out, torch.Tensor) else out


# %% [markdown]
# ## Which sum is precise enough?
#
# RMSNorm of float16 rows, beside float64. The grey line squares and adds in float16, as a kernel does
# that forgets to widen what it loads. Why does its error grow with the row, and why does yours not?
# What would the tutor's rows of 256 numbers lose, and what those of a model with 4,096?

# %%
torch.manual_seed(0)
LENGTHS = (16, 64, 256, 1024, 4096)


def summed_in_half(x):
    total = torch.zeros(len(x), 1, dtype=torch.float16)
    for column in (x * x).unbind(1):
        total += column[:, None]
    return x / (total / x.shape[1]).sqrt()


def worst(got, x):
    right = x.double() / (x.double().square().mean(1, keepdim=True) + 1e-6).sqrt()
    return float((got.double() - right).abs().max() / right.abs().max())


errors = {"in float32, yours": [], "in float16": []}
for length in LENGTHS:
    x = (4 * torch.randn(8, length)).half()
    yours = run("rms_norm", x, torch.ones(length, dtype=torch.float16), eps=1e-6)
    errors["in float32, yours"].append(worst(yours, x))
    errors["in float16"].append(worst(summed_in_half(x), x))
fig, ax = draw.figure(6, 3)
for (name, values), colour in zip(errors.items(), (draw.BLUE, draw.GREY), strict=True):
    ax.loglog(LENGTHS, values, "o-", color=colour, label=name)
ax.axhline(2.0**-11, color=draw.GREY, linestyle=":", label="half a step of float16")
ax.set(xlabel="length of a row", ylabel="largest error", title="the sum of squares")
ax.legend()
draw.show(fig)

# %% [markdown]
# ## Slots
#
# Nine tokens are stored in a pool of four blocks of four slots. Token 4 has slot -1: it is padding,
# as a batch has it that is filled up to a fixed size. Which token went where? Which slots keep what
# was in them?

# %%
SLOTS = [5, 6, 7, 12, -1, 13, 2, 3, 15]
token = torch.arange(len(SLOTS)).float()
rows = token[:, None, None].expand(-1, 1, 2).contiguous()
pools = [torch.full((4, 4, 1, 2), -1.0, device=DEVICE) for _ in range(2)]
kernels.store_kv(rows.to(DEVICE), rows.to(DEVICE), *pools, torch.tensor(SLOTS, device=DEVICE))
stored = pools[0][..., 0, 0].cpu()

fig, ax = draw.figure(6.5, 1.8)
draw.board(ax, 16, 1, "the pool; a number is the token whose key lies there")
for slot, value in enumerate(stored.flatten().tolist()):
    name = "" if value < 0 else int(value)
    draw.box(ax, slot, 0, name, draw.BLUE if value >= 0 else draw.PALE)
    ax.text(slot + 0.5, 1.25, slot, ha="center", va="center", fontsize=6)
draw.show(fig)

# %% [markdown]
# ## Two in one
#
# `rope_and_store` turns the queries where they lie and the keys on their way to the pool. The same
# key of (1, 1, 1, 1, 0, 0, 0, 0) at positions 0 to 7: what the kernel was given, what it left there, and
# what lies in the pool. Which of the pictures would change if the keys were turned in place first?

# %%
TOKENS, D = 8, 8
key = torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0]).repeat(TOKENS, 1, 1)
angles = torch.outer(torch.arange(TOKENS).float(), 10.0 ** -torch.arange(4).float())
q, k, v = (key.clone().to(DEVICE) for _ in range(3))
pools = [torch.zeros(2, 4, 1, D, device=DEVICE) for _ in range(2)]
order = torch.arange(TOKENS, device=DEVICE)
kernels.rope_and_store(
    q, k, v, order, angles.cos().to(DEVICE), angles.sin().to(DEVICE), *pools, order
)
fig, axes = draw.figure(9, 3, 1, 3, sharey=True)
for ax, (title, values) in zip(
    axes,
    {"keys before": key, "keys after": k, "in the pool": pools[0]}.items(),
    strict=True,
):
    ax.imshow(values.cpu().reshape(TOKENS, D), cmap="cividis", vmin=-1, vmax=1)
    ax.set(title=title, xlabel="dimension")
axes[0].set_ylabel("position")
draw.show(fig)

# %% [markdown]
# ## A gate
#
# silu(gate) * up for an up of 1. Where does the gate let nothing through, where everything? At which
# gate is it lowest? And what would a kernel store that computes the exponential in float16 for a gate
# of -12?

# %%
gate = torch.linspace(-12, 6, 400)
opened = run("silu_mul", torch.stack([gate, torch.ones_like(gate)], dim=1))[:, 0]
fig, ax = draw.figure(6, 2.8)
ax.plot(gate, gate.clamp(min=0), color=draw.PALE, label="max(gate, 0)")
ax.plot(gate, opened, color=draw.BLUE, label="silu(gate)")
lowest = int(opened.argmin())
ax.plot(gate[lowest], opened[lowest], "o", color=draw.BLUE)
ax.annotate(f"{gate[lowest]:.2f}, {opened[lowest]:.2f}", (gate[lowest], opened[lowest] - 0.6))
ax.set(xlabel="gate", ylabel="silu(gate)")
ax.legend()
draw.show(fig)

# %% [markdown]
# ## Change this and see
#
# 1. Multiply the rows of the first picture by 100 instead of 4. Which line ends, and why?
# 2. Give two tokens of the second picture the same slot. Is it defined which of them stays?
# 3. Give `rope_and_store` a slot of -1 at position 3. What is missing, and what is still turned?
